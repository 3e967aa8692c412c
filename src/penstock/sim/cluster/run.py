"""A whole cluster in virtual time: product code on every node, clients at work, faults drawn from
the seed, and then every rule checked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.sim.cluster import checks as seen
from penstock.sim.cluster import group_checks as groups
from penstock.sim.cluster import inner_checks as inside
from penstock.sim.cluster.checks import Checker
from penstock.sim.cluster.faults import CLIENTS, Faults
from penstock.sim.cluster.groups import MEMBERS, GroupWorkload
from penstock.sim.cluster.health import trouble
from penstock.sim.cluster.history import (
    Acknowledged,
    Appended,
    Applied,
    Counted,
    Cut,
    Decided,
    Elected,
    History,
    Read,
    ReplicaLog,
    Ruled,
    Sent,
    Struck,
)
from penstock.sim.cluster.impostor import Impostor
from penstock.sim.cluster.logs import batches_below
from penstock.sim.cluster.nodes import build_nodes
from penstock.sim.cluster.observer import Observer
from penstock.sim.cluster.quorum_observer import QuorumObserver
from penstock.sim.cluster.shape import draw_shape
from penstock.sim.cluster.workload import KINDS, Workload
from penstock.sim.log.model import Broken
from penstock.world.sim import Simulation, SimulationStuck

# (rule of INVARIANTS.md, checker). Rule 26 holds where all others do although clocks jump; the last
# one is what is special about it.
CHECKERS: tuple[tuple[int, Checker], ...] = (
    (1, seen.nothing_acknowledged_is_lost),
    (1, seen.topics_created_are_there),
    (2, seen.acknowledged_is_committed),
    (2, inside.too_few_in_sync_commit_nothing),
    (3, seen.one_value_an_offset),
    (4, seen.idempotent_means_once),
    (5, seen.log_order_is_send_order),
    (6, seen.offsets_are_dense),
    (7, inside.watermark_never_goes_back),
    (7, inside.watermark_is_what_all_in_sync_have),
    (8, seen.nothing_above_the_watermark_is_served),
    (8, seen.impostors_get_no_more),
    (9, inside.logs_match),
    (10, inside.leaders_come_from_the_in_sync),
    (10, inside.leaders_are_complete),
    (11, inside.divergence_is_cut_by_epoch),
    (12, inside.old_leaders_take_nothing),
    (12, inside.old_fetches_do_not_count),
    (12, groups.stale_members_commit_nothing),
    (13, groups.committed_offsets_never_go_back),
    (14, groups.one_owner_a_generation),
    (16, inside.one_vote_an_epoch),
    (16, inside.one_quorum_leader_an_epoch),
    (17, inside.metadata_needs_a_majority),
    (17, inside.metadata_agrees),
    (25, seen.everything_heals),
    (26, seen.clocks_do_not_matter),
)
STARTS_WITHIN_S = 30.0
HEALS_WITHIN_S = 40.0
_LOOK_S = 0.1
_SHOWN_EVENTS = 60
# Too many of them to be shown.
_USUAL = (Applied, Appended, Counted, Decided, Read, Sent)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run had to stand. One in which nothing was elected, cut or acknowledged proves
    nothing, and does not count."""

    digest: str
    seconds: float
    elections: int
    truncations: int
    acknowledged: int

    @property
    def counts(self) -> bool:
        return min(self.elections, self.truncations, self.acknowledged) > 0


def run_cluster(seed: int) -> Report:
    """One run. Broken where a rule does not hold, with what led there and how to see it again."""
    simulation = Simulation(seed, trace_lines=20)
    history = History()
    began = simulation.loop.time()
    try:
        simulation.run(ClusterRun(simulation, history).main())
        violations = [
            (rule, checker, found) for rule, checker in CHECKERS for found in checker(history)
        ]
    except (Exception, SimulationStuck) as error:
        raise Broken(
            _account(seed, f"{type(error).__name__}: {error}", history, simulation.loop.time())
        ) from error
    if violations:
        rule, checker, first = min(violations, key=lambda one: one[2].at)
        others = f" ({len(violations) - 1} more violations)" if len(violations) > 1 else ""
        raise Broken(
            _account(
                seed, f"rule {rule}, {checker.__name__}: {first.text}{others}", history, first.at
            )
        )
    return Report(
        simulation.trace.digest(),
        simulation.loop.time() - began,
        len(history.of(Elected)) + len(history.of(Ruled)),
        len(history.of(Cut)),
        len(history.of(Acknowledged)),
    )


def _account(seed: int, problem: str, history: History, at: float) -> str:
    before = [
        event for event in history.events if event.at <= at and not isinstance(event, _USUAL)
    ][-_SHOWN_EVENTS:]
    return "\n".join(
        [
            f"cluster seed {seed}, at {at:.3f} s: {problem}",
            "what came before:",
            *(f"  {event}" for event in before),
            "the last of the trace:",
            *(f"  {line}" for line in history.trace),
            f"again with: python -m penstock.sim --cluster --seed {seed}",
        ]
    )


class Unhealed(Exception):
    """Something did not come to pass in time."""


class ClusterRun:
    def __init__(self, simulation: Simulation, history: History) -> None:
        self._simulation = simulation
        self._history = history
        self._now = simulation.loop.time
        self._observer = Observer(history, self._now)
        self._shape = draw_shape(simulation.stream("shape"))
        self._nodes = build_nodes(simulation, self._shape.configs, self._say)
        self._machines = [simulation.node(name) for name in CLIENTS]
        self._workload = Workload(
            self._shape, history, simulation.stream("workload"), self._observer.watermark
        )
        self._impostor = Impostor(
            self._shape, history, simulation.stream("impostor"), self._observer.watermark
        )
        self._group = GroupWorkload(
            self._shape.topics[0],
            history.events.append,
            simulation.stream("group"),
            self._workload.connected,
        )
        history.promised.update({topic.name: not topic.unclean for topic in self._shape.topics})
        history.unclean.update(topic.name for topic in self._shape.topics if topic.unclean)

    def _say(self, what: str) -> None:
        self._history.events.append(Struck(self._now(), what))

    async def main(self) -> None:
        with self._observer.looking_on(), QuorumObserver(self._history, self._now).looking_on():
            try:
                await self._live()
            except Unhealed as error:
                self._history.unhealed = str(error)
            finally:
                # Before everything that still runs is taken down.
                self._history.ended = self._now()
                self._history.trace = self._simulation.trace.lines()

    async def _live(self) -> None:
        for node in self._nodes.values():
            node.start()
        for topic in self._shape.topics:
            await self._on_client(
                0,
                self._workload.create(self._machines[0], topic),
                STARTS_WITHIN_S,
                f"creating {topic.name}",
            )
        await self._wait_healthy(STARTS_WITHIN_S)
        clients, members = self._start_clients(), self._start_group()
        faults = Faults(self._simulation, self._shape, self._nodes, self._history, self._observer)
        await faults.run()
        faults.end()
        if members:
            await self._on_client(
                0,
                self._group.wait_settled(self._machines[0]),
                HEALS_WITHIN_S,
                "a group that shares all partitions",
            )
        self._group.over.set()
        self._workload.over.set()
        _done, stuck = await asyncio.wait([*clients, *members], timeout=HEALS_WITHIN_S)
        if stuck:
            raise Unhealed(
                f"{len(stuck)} clients are not done {HEALS_WITHIN_S:g} s after all faults ended: "
                f"{self._trouble()}"
            )
        await self._wait_healthy(HEALS_WITHIN_S, at_rest=True)
        await self._on_client(
            1,
            self._workload.read_everything(self._machines[1], self._shape.topics),
            HEALS_WITHIN_S,
            "reading everything",
        )
        self._keep_logs()

    def _start_clients(self) -> list[asyncio.Task[None]]:
        one, other = self._machines
        hosts = dict(zip(KINDS, (one, one, other, other), strict=True))
        producers = [
            machine.start(self._workload.produce(machine, name)) for name, machine in hosts.items()
        ]
        consumers = [
            other.start(self._workload.consume(other, f"{topic.name} reader", topic))
            for topic in self._shape.topics
        ]
        impostor = other.start(self._impostor.pose(other, self._workload.over))
        return [*producers, *consumers, one.start(self._workload.administer(one)), impostor]

    def _start_group(self) -> list[asyncio.Task[None]]:
        if not self._shape.with_group:
            return []
        hosts = [self._machines[number % len(self._machines)] for number in range(MEMBERS)]
        members = [
            machine.start(self._group.member(machine, f"member{number}"))
            for number, machine in enumerate(hosts)
        ]
        return [*members, self._machines[1].start(self._group.look_on(self._machines[1]))]

    async def _on_client(
        self, number: int, work: Coroutine[Any, Any, None], within_s: float, what: str
    ) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._machines[number].run(work)
        except TimeoutError:
            raise Unhealed(f"{what} takes longer than {within_s:g} s: {self._trouble()}") from None

    def _trouble(self, *, at_rest: bool = False) -> str | None:
        return trouble(self._nodes.values(), self._observer, at_rest=at_rest)

    async def _wait_healthy(self, within_s: float, *, at_rest: bool = False) -> None:
        deadline = self._now() + within_s
        while (wrong := self._trouble(at_rest=at_rest)) is not None:
            if self._now() >= deadline:
                raise Unhealed(f"after {within_s:g} s without faults: {wrong}")
            await asyncio.sleep(_LOOK_S)

    def _keep_logs(self) -> None:
        for topic in self._shape.topics:
            for name in topic.all_partitions:
                replicas = [
                    (life.config.node_id, life.replicas.partitions[name])
                    for life in self._observer.lives.values()
                    if name in life.replicas.partitions
                ]
                self._history.logs[name] = {
                    node_id: ReplicaLog(
                        partition.high_watermark,
                        tuple(batches_below(partition, partition.log_end_offset)),
                    )
                    for node_id, partition in replicas
                }
