"""Runs a whole cluster in virtual time: product code on every node, clients at work, faults drawn
from the seed. Then every rule is checked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.records.record import read_records
from penstock.sim.cluster.checkers import CHECKERS
from penstock.sim.cluster.events import (
    BecameQuorumLeader,
    FaultEvent,
    FileRepaired,
    FollowerFetchAccepted,
    HeartbeatAnswered,
    HighWatermarkAdvanced,
    KeyedRecordAcknowledged,
    KeyedRecordSent,
    LeaderAppended,
    LeaderElected,
    LogTruncated,
    MetadataBatchCommitted,
    NodeEnded,
    OffsetsFetched,
    PowerLostTogether,
    QuorumHighWatermarkAdvanced,
    RecordAcknowledged,
    RecordConsumed,
    RecordSent,
    SnapshotPieceFetched,
    StrangerAnswered,
)
from penstock.sim.cluster.faults.injector import CLIENTS, FaultInjector
from penstock.sim.cluster.faults.quorum import snapshot_pieces
from penstock.sim.cluster.health import find_problem
from penstock.sim.cluster.history import History, ReplicaLog
from penstock.sim.cluster.nodes import build_nodes
from penstock.sim.cluster.observers.logs import read_batches
from penstock.sim.cluster.observers.partitions import PartitionObserver
from penstock.sim.cluster.observers.quorum import QuorumObserver
from penstock.sim.cluster.observers.transactions import TransactionObserver
from penstock.sim.cluster.spec import WorkloadKind, draw_spec
from penstock.sim.cluster.transaction_events import (
    CopyOffsetsFetched,
    IsolatedRead,
    MarkerAppended,
    StableOffsetAdvanced,
    StableOffsetFetched,
    TransactionalSend,
    TransactionalSendAcknowledged,
)
from penstock.sim.cluster.workloads import compacted_topic
from penstock.sim.cluster.workloads.access_control import AccessControl, decisions_of
from penstock.sim.cluster.workloads.clients import PRODUCERS, ClientWorkload
from penstock.sim.cluster.workloads.compacted_topic import keyed_record
from penstock.sim.cluster.workloads.drawn import build_workloads
from penstock.sim.cluster.workloads.group import MEMBERS, GroupWorkload
from penstock.sim.cluster.workloads.impostor import Impostor
from penstock.sim.cluster.workloads.reassignments import Reassignments
from penstock.sim.cluster.workloads.transactions.workload import TOPICS as TRANSACTION_TOPICS
from penstock.sim.cluster.workloads.transactions.workload import TransactionWorkload
from penstock.sim.cluster.workloads.workload import Workload, WorkloadEnv
from penstock.sim.harness import InvariantViolated
from penstock.world.sim import Simulation, SimulationStuck

STARTS_WITHIN_S = 30.0
HEALS_WITHIN_S = 40.0
_POLL_S = 0.1
# Ten times what the longest runs take: more is a loop in which no time passes.
_MAX_STEPS = 10_000_000
# A failure report shows all faults, and this many events without the frequent ones.
_SHOWN_EVENTS = 40
_FAULTS = (FaultEvent, FileRepaired, NodeEnded, PowerLostTogether)
_FREQUENT_EVENTS = (
    FollowerFetchAccepted,
    HeartbeatAnswered,
    HighWatermarkAdvanced,
    KeyedRecordAcknowledged,
    KeyedRecordSent,
    LeaderAppended,
    MetadataBatchCommitted,
    OffsetsFetched,
    QuorumHighWatermarkAdvanced,
    RecordAcknowledged,
    RecordConsumed,
    RecordSent,
    SnapshotPieceFetched,
    StrangerAnswered,
    CopyOffsetsFetched,
    IsolatedRead,
    MarkerAppended,
    StableOffsetAdvanced,
    StableOffsetFetched,
    TransactionalSend,
    TransactionalSendAcknowledged,
)


@dataclass(frozen=True, slots=True)
class Report:
    """What happened in a run that passed. A run without an election, a truncation or an
    acknowledged record proves nothing: it does not count."""

    digest: str
    seconds: float
    elections: int
    truncations: int
    acknowledged: int
    # How often each workload and fault did what.
    totals: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        return min(self.elections, self.truncations, self.acknowledged) > 0


def run_transactions(seed: int) -> Report:
    """Run one seed of a cluster with transactional clients."""
    return run_cluster(seed, with_transactions=True)


def run_reassignments(seed: int) -> Report:
    """Run one seed of a cluster whose partitions move between brokers."""
    return run_cluster(seed, with_reassignments=True)


def run_acls(seed: int) -> Report:
    """Run one seed of a cluster with an authorizer, whose entries change."""
    return run_cluster(seed, with_acls=True)


def run_cluster(
    seed: int,
    *,
    with_extras: bool = True,
    with_transactions: bool = False,
    with_reassignments: bool = False,
    with_acls: bool = False,
) -> Report:
    """Run one seed. Raise InvariantViolated if a rule does not hold, with the events before it and
    the command that repeats the run. Without `with_extras` only the basic workloads and faults
    run, which makes speeds comparable. `with_transactions` adds transactional clients, and leaves
    out some of the others. `with_reassignments` adds brokers, and moves partitions between them.
    `with_acls` adds an authorizer, and clients with and without rights."""
    simulation = Simulation(seed, trace_lines=20, max_steps=_MAX_STEPS)
    history = History()
    started, option = simulation.now(), "transactions" if with_transactions else "cluster"
    if with_reassignments:
        option = "reassignments"
    if with_acls:
        option = "acls"
    try:
        simulation.run(
            ClusterRun(
                simulation,
                history,
                with_extras=with_extras,
                with_transactions=with_transactions,
                with_reassignments=with_reassignments,
                with_acls=with_acls,
            ).main()
        )
        violations = [
            (rule, checker, violation)
            for rule, checker in CHECKERS
            for violation in checker(history)
        ]
    except (Exception, SimulationStuck) as error:
        problem = f"{type(error).__name__}: {error}"
        raise InvariantViolated(
            _failure_report(option, seed, problem, history, simulation.now())
        ) from error
    if violations:
        rule, checker, first = min(violations, key=lambda violation: violation[2].at)
        others = f" ({len(violations) - 1} more violations)" if len(violations) > 1 else ""
        problem = f"rule {rule}, {checker.__name__}: {first.text}{others}"
        raise InvariantViolated(_failure_report(option, seed, problem, history, first.at))
    return Report(
        simulation.trace.digest(),
        simulation.now() - started,
        len(history.of(LeaderElected)) + len(history.of(BecameQuorumLeader)),
        len(history.of(LogTruncated)),
        len(history.of(RecordAcknowledged)),
        dict(sorted(history.totals.items())),
    )


def _failure_report(option: str, seed: int, problem: str, history: History, at: float) -> str:
    events = [
        event
        for event in history.events
        if event.at <= at and not isinstance(event, _FREQUENT_EVENTS)
    ]
    return "\n".join(
        [
            f"{option} seed {seed}, at {at:.3f} s: {problem}",
            "the faults:",
            *(f"  {event}" for event in history.events if isinstance(event, _FAULTS)),
            "the events before it:",
            *(f"  {event}" for event in events[-_SHOWN_EVENTS:]),
            "the end of the trace:",
            *(f"  {line}" for line in history.trace),
            f"repeat with: python -m penstock.sim --{option} --seed {seed}",
        ]
    )


class NotHealed(Exception):
    """The cluster or a client did not reach the expected state in time."""


class ClusterRun:
    def __init__(
        self,
        simulation: Simulation,
        history: History,
        *,
        with_extras: bool = True,
        with_transactions: bool = False,
        with_reassignments: bool = False,
        with_acls: bool = False,
    ) -> None:
        self._simulation = simulation
        self._history = history
        self._with_extras = with_extras
        self._now = simulation.now
        self._observer = PartitionObserver(history, self._now)
        self._spec = draw_spec(
            simulation.stream("shape"),
            simulation.stream("extras") if with_extras else None,
            simulation.stream("transactions") if with_transactions else None,
            simulation.stream("reassignments") if with_reassignments else None,
            simulation.stream("acls") if with_acls else None,
        )
        self._nodes = build_nodes(simulation, self._spec.configs, self._note, self._on_end)
        self._machines = [simulation.node(name) for name in CLIENTS]
        self._clients = ClientWorkload(
            self._spec, history, simulation.stream("workload"), self._observer.max_high_watermark
        )
        self._impostor = Impostor(
            self._spec, history, simulation.stream("impostor"), self._observer.max_high_watermark
        )
        self._group = GroupWorkload(
            self._spec.topics[0],
            history.events.append,
            simulation.stream("group"),
            self._clients.connected,
            static=WorkloadKind.STATIC_MEMBERS in self._spec.workloads,
        )
        self._faults_over = asyncio.Event()
        self._transactions = TransactionObserver(history, self._now, TRANSACTION_TOPICS)
        self._workloads = self._build_workloads()
        history.durable_topics.update(
            {topic.name: not topic.unclean for topic in self._spec.topics}
        )
        history.unclean_topics.update(topic.name for topic in self._spec.topics if topic.unclean)

    def _build_workloads(self) -> list[Workload]:
        env = WorkloadEnv(
            self._spec,
            self._history,
            self._simulation.stream("workloads"),
            self._clients.connected,
            self._observer.max_high_watermark,
            self._faults_over,
            self._clients.over,
        )
        workloads = build_workloads(env)
        if self._spec.transactions is not None:
            own = replace(env, rng=self._simulation.stream("transactional clients"))
            workloads.append(TransactionWorkload(own, self._transactions))
        if self._spec.with_reassignments:
            workloads.append(
                Reassignments(replace(env, rng=self._simulation.stream("reassigned partitions")))
            )
        if self._spec.with_acls:
            own = replace(env, rng=self._simulation.stream("access control"))
            workloads.append(AccessControl(own))
        return workloads

    def _note(self, description: str) -> None:
        self._history.events.append(FaultEvent(self._now(), description))

    def _on_end(self, node_id: int, error: str) -> None:
        self._history.events.append(NodeEnded(self._now(), node_id, error))

    async def main(self) -> None:
        with (
            self._observer.observing(),
            QuorumObserver(self._history, self._now).observing(),
            self._transactions.observing()
            if self._spec.transactions is not None
            else contextlib.nullcontext(),
            snapshot_pieces(
                self._spec.snapshot_piece_bytes, self._simulation.stream("snapshot pieces")
            ),
        ):
            try:
                await self._run()
            except NotHealed as error:
                self._history.heal_failure = str(error)
            finally:
                # Now, because the simulation then cancels whatever still runs.
                self._history.ended_at = self._now()
                self._history.trace = self._simulation.trace.lines()

    async def _run(self) -> None:
        for node in self._nodes.values():
            node.start()
        for topic in self._spec.topics:
            await self._on_client(
                0,
                self._clients.create(self._machines[0], topic),
                STARTS_WITHIN_S,
                f"creating {topic.name}",
            )
        for workload in self._workloads:
            await self._on_client(
                0, workload.prepare(self._machines[0]), STARTS_WITHIN_S, f"preparing {workload}"
            )
        await self._wait_healthy(STARTS_WITHIN_S)
        clients, members = self._start_clients(), self._start_group()
        for workload in self._workloads:
            clients += [machine.start(work) for machine, work in workload.clients(*self._machines)]
        faults = FaultInjector(
            self._simulation,
            self._spec,
            self._nodes,
            self._history,
            self._observer,
            self._clients.connected if self._with_extras else None,
        )
        await faults.run()
        faults.end()
        self._faults_over.set()
        for workload in self._workloads:
            await self._on_client(
                0, workload.settle(self._machines[0]), HEALS_WITHIN_S, f"settling {workload}"
            )
        if members:
            await self._on_client(
                0,
                self._group.wait_settled(self._machines[0]),
                HEALS_WITHIN_S,
                "settling the group",
            )
        self._group.over.set()
        self._clients.over.set()
        _done, stuck = await asyncio.wait([*clients, *members], timeout=HEALS_WITHIN_S)
        if stuck:
            raise NotHealed(
                f"{len(stuck)} clients did not end within {HEALS_WITHIN_S:g} s after the faults: "
                f"{self._problem()}"
            )
        await self._wait_healthy(HEALS_WITHIN_S, idle=True)
        await self._on_client(
            1,
            self._clients.read_everything(self._machines[1], self._spec.topics),
            HEALS_WITHIN_S,
            "reading everything",
        )
        for workload in self._workloads:
            await self._on_client(
                1, workload.read_back(self._machines[1]), HEALS_WITHIN_S, f"reading {workload}"
            )
        if self._spec.transactions is not None:
            # Markers of transactions that have timed out must reach all replicas.
            await self._wait_healthy(HEALS_WITHIN_S, idle=True)
        self._record_logs()

    def _start_clients(self) -> list[asyncio.Task[None]]:
        first, second = self._machines
        hosts = dict(zip(PRODUCERS, (first, first, second, second), strict=True))
        if self._spec.transactions is not None:
            # Those that check the same rules twice are left out, for time.
            hosts = {name: hosts[name] for name in ("idempotent1", "plain")}
        producers = [
            machine.start(self._clients.produce(machine, name)) for name, machine in hosts.items()
        ]
        consumers = [
            second.start(self._clients.consume(second, f"{topic.name} reader", topic))
            for topic in self._spec.topics
        ]
        impostor = second.start(self._impostor.run(second, self._clients.over))
        return [*producers, *consumers, first.start(self._clients.administer(first)), impostor]

    def _start_group(self) -> list[asyncio.Task[None]]:
        is_static = WorkloadKind.STATIC_MEMBERS in self._spec.workloads
        is_left_out = not self._spec.with_group or self._spec.transactions is not None
        if is_left_out and not is_static:
            return []
        hosts = [self._machines[number % len(self._machines)] for number in range(MEMBERS)]
        members = [
            machine.start(self._group.run_member(machine, f"member{number}"))
            for number, machine in enumerate(hosts)
        ]
        return [*members, self._machines[1].start(self._group.watch_offsets(self._machines[1]))]

    async def _on_client(
        self, number: int, work: Coroutine[Any, Any, None], within_s: float, task: str
    ) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._machines[number].run(work)
        except TimeoutError:
            raise NotHealed(f"{task} takes longer than {within_s:g} s: {self._problem()}") from None

    def _problem(self, *, idle: bool = False) -> str | None:
        return find_problem(self._nodes.values(), self._observer, idle=idle)

    async def _wait_healthy(self, within_s: float, *, idle: bool = False) -> None:
        deadline = self._now() + within_s
        while (problem := self._problem(idle=idle)) is not None:
            if self._now() >= deadline:
                raise NotHealed(f"after {within_s:g} s without faults: {problem}")
            await asyncio.sleep(_POLL_S)

    def _record_logs(self) -> None:
        """Record the logs of all replicas. Replicas compact their logs independently, so that of
        compacted logs only the records are comparable."""
        for process in self._observer.processes.values():
            if process.authorizer is not None:
                entries = frozenset(process.metadata.image.acls.values())
                decisions = decisions_of(process.authorizer, self._spec)
                self._history.final_acls[process.config.node_id] = entries, decisions
            for name, partition in process.replicas.partitions.items():
                self._history.final_stable.setdefault(name, {})[process.config.node_id] = (
                    partition.last_stable_offset,
                    partition.high_watermark,
                )
                batches = tuple(read_batches(partition, partition.log_end_offset))
                if name.topic == compacted_topic.TOPIC:
                    reader = f"replica {process.config.node_id}"
                    self._history.final_keyed[reader] = [
                        keyed_record(record)
                        for _base, _next, data in batches
                        for record in read_records(data)
                    ]
                elif not partition.config.compacts:
                    self._history.final_logs.setdefault(name, {})[process.config.node_id] = (
                        ReplicaLog(partition.high_watermark, batches, partition.log_start_offset)
                    )
