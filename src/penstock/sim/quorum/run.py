"""Runs a quorum of three or five controllers and an observer under faults (rules 16 to 20, 24).

The leader writes one numbered setting after the other while `faults` injects faults. Then the
faults end, and the quorum must recover within a bound (rule 25). Voters that refuse to start,
because their files are damaged or wiped, are formatted again once all others have every record.
Sometimes another voter is replaced by an empty one at the end, which then makes the majority.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import METADATA_FETCH_BYTES
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.quorum import quorum as quorum_module
from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.raft.messages import Effect, FetchSnapshot, Truncate
from penstock.raft.states import LeaderState
from penstock.raft.voters import Voter, VoterSetHistory
from penstock.sim.cluster.history import History as ObservedHistory
from penstock.sim.cluster.observers.quorum import QuorumObserver
from penstock.sim.harness import InvariantViolated, replaced
from penstock.sim.quorum.faults import OBSERVER, QuorumFaults
from penstock.sim.quorum.history import RESOURCE, History, check
from penstock.sim.quorum.members import Members
from penstock.sim.quorum.node import (
    Listener,
    SlowDisk,
    format_quorum_node,
    quorum_config,
    quorum_node,
)
from penstock.world import World
from penstock.world.sim import Node, NodeCrashed, Simulation

PORT = 9093
FAULTS = 10
# A node refuses to start with these if its files are damaged: a flipped bit in meta.properties or
# quorum-state may name another node or cluster.
DAMAGE_CODES = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_CLUSTER_ID}
# The share of runs with dynamic voters.
DYNAMIC_SHARE = 0.4
# Fetching a snapshot byte by byte takes some seconds.
RECOVERED_WITHIN_S = 60.0
# The probability that a voter is replaced at the end.
REPLACED_AT_THE_END = 0.4
# The probability that all dynamic voters are replaced at the end, one by one.
ALL_REPLACED_AT_THE_END = 0.2


@dataclass(slots=True)
class QuorumReport:
    """What a run did: a run without elections and acknowledged writes proves nothing."""

    digest: str = ""
    elections: int = 0
    truncations: int = 0
    acknowledged: int = 0
    snapshots_fetched: int = 0
    damaged: int = 0
    refused: int = 0
    voters_added: int = 0
    voters_removed: int = 0
    voters_wiped: int = 0

    @property
    def counts(self) -> bool:
        return min(self.elections, self.acknowledged) > 0


def run_quorum(seed: int) -> QuorumReport:
    """Run one seed. Raises InvariantViolated if an invariant does not hold."""
    simulation = Simulation(seed, trace_lines=40)
    run = QuorumRun(simulation)
    try:
        with run.observing():
            simulation.run(run.main())
        check(run.observed)
    except BaseException as error:
        tail = "\n".join(simulation.trace.lines())
        raise InvariantViolated(
            f"quorum seed {seed}: {error!r}\nthe end of the trace:\n{tail}\n"
            f"repeat with: python -m penstock.sim --quorum --seed {seed}"
        ) from error
    run.report.digest = simulation.trace.digest()
    run.report.elections = len(run.history.leaders)
    run.report.acknowledged = len(run.history.acknowledged)
    run.report.damaged = len(run.faults.damaged)
    if run.members is not None:
        run.report.voters_added = run.members.added
        run.report.voters_removed = run.members.removed
        run.report.voters_wiped = len(run.members.lost)
    return run.report


class RunObserver(QuorumObserver):
    """Counts truncations too."""

    report: QuorumReport

    def _on_message(self, driver: RaftDriver, effect: Effect) -> None:
        super()._on_message(driver, effect)
        self.report.truncations += isinstance(effect, Truncate)


class ObservedQuorum(Quorum):
    """Reports every leader, also one that never commits a record, and snapshot downloads."""

    run: QuorumRun

    @property
    def local(self) -> Voter:
        return self._raft.local

    @property
    def is_synced(self) -> bool:
        """True if the node's whole log is committed and on disk."""
        return self._log.synced_end == self.log_end_offset == self.high_watermark

    def set_piece_bytes(self, piece_bytes: int) -> None:
        self._downloads.piece_bytes = piece_bytes

    async def open(self) -> None:
        self._log.fetch_max_bytes = self.run.fetch_max_bytes
        self.set_piece_bytes(self.run.piece_bytes)
        self.run.histories[self.node_id] = self._log.voter_sets
        await super().open()

    async def _download_snapshot(self, effect: FetchSnapshot) -> None:
        self.run.report.snapshots_fetched += 1
        await super()._download_snapshot(effect)

    def _on_step(self) -> None:
        super()._on_step()
        if isinstance(self._raft.state, LeaderState) and self.run.on_leader(
            self.node_id, self._raft.epoch
        ):
            members = self.run.members
            if members is not None:
                self._spawn(members.change_at_once(self))


class QuorumRun:
    def __init__(self, simulation: Simulation) -> None:
        self.rng: random.Random = simulation.stream("workload")
        self.network = simulation.network
        self.trace = simulation.trace
        self.history = History()
        self.report = QuorumReport()
        self.observed = ObservedHistory()
        self._observer = RunObserver(self.observed, simulation.now)
        self._observer.report = self.report
        self.ids = range(1, self.rng.choice((3, 3, 5)) + 1)
        # Dynamic voters: some controllers more, which join (KIP-853).
        members_rng: random.Random = simulation.stream("members")
        is_dynamic = members_rng.random() < DYNAMIC_SHARE
        if is_dynamic:
            self.ids = range(1, members_rng.choice((4, 5, 6)) + 1)
        self.members = Members(self, members_rng, PORT) if is_dynamic else None
        # The voters in the log of each controller's current process, or of its last.
        self.histories: dict[int, VoterSetHistory] = {}
        self.voters = {node_id: simulation.node(f"c{node_id}") for node_id in self.ids}
        self.nodes: dict[int, Node] = {**self.voters, OBSERVER: simulation.node("o9")}
        self.quorums: dict[int, ObservedQuorum] = {}
        # Nodes that may refuse to start because of damage, those that did, and wiped ones.
        self.may_refuse: set[int] = set()
        self.refused: set[int] = set()
        self.wiped: set[int] = set()
        self.written = 0
        self.is_settling = False
        self.fetch_max_bytes = self.rng.choice((1, METADATA_FETCH_BYTES))
        self.piece_bytes = self.rng.choice((1, 7, 100, 100, METADATA_FETCH_BYTES))
        # How a node applies an image: in how many steps, and how long it pauses after some.
        self._steps_per_image = self.rng.choice((0, 0, 8))
        self._publish_pause_s = self.rng.choice((0.0, 0.1, 1.0))
        self.disk_delays = {
            node_id: self.rng.choice((0.0, 0.0, 0.0, 0.1, 0.5)) for node_id in self.nodes
        }
        settings: dict[str, object] = {
            "metadata.log.max.record.bytes.between.snapshots": self.rng.choice(
                (200, 200, 1_000, 20_000_000)
            ),
            "metadata.log.segment.bytes": self.rng.choice((2_000, 1_000_000)),
            "metadata.max.retention.bytes": 0,
        }
        voters = {voter: f"c{voter}:{PORT}" for voter in self.ids}
        self._configs: dict[int, NodeConfig] = {
            node_id: quorum_config(
                node_id,
                voters,
                "/d",
                settings,
                listener="o9:9092" if node_id == OBSERVER else None,
                knows_voters=not is_dynamic,
            )
            for node_id in self.nodes
        }
        self._kind = type("ObservedQuorumOfRun", (ObservedQuorum,), {"run": self})
        self.faults = QuorumFaults(self)

    def observing(self) -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(self._observer.observing())
        stack.enter_context(
            replaced(quorum_module, "PUBLISH_PAUSE_S", lambda _original: self._publish_pause_s)
        )
        return stack

    async def main(self) -> None:
        for node_id, node in self.nodes.items():
            node.set_drift(self.rng.choice((1.0, 1.0, 0.98, 1.03)))
            self._format(node_id)
            self.start(node_id)
        for _fault in range(FAULTS):
            await asyncio.sleep(self.rng.random() ** 2 * 2)
            self.faults.inject()
        self.faults.end()
        quorum_module.PUBLISH_PAUSE_S = 0.0
        await self._recover()

    # Nodes

    def _format(self, node_id: int) -> None:
        world = self.nodes[node_id].world
        members = self.members if node_id != OBSERVER else None
        initial = members.initial(node_id) if members is not None else None
        format_quorum_node(world, self._configs[node_id], initial)
        world.disk.sync_dir("/")
        if members is not None:
            members.formatted(node_id)

    def reformat(self, node_id: int) -> None:
        """Empty and format the directory of a node that has been restarted but not started."""
        self.faults.forget_triggers(node_id)
        disk = self.nodes[node_id].world.disk
        if disk.exists("/d"):
            disk.remove_tree("/d")
        self._format(node_id)
        for nodes in (self.may_refuse, self.refused, self.wiped):
            nodes.discard(node_id)

    def restart(self, node_id: int) -> None:
        """Start a new process on what survived."""
        self.nodes[node_id].restart()
        self.start(node_id)

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        self.quorums.pop(node_id, None)
        world = node.world
        if self.disk_delays[node_id]:
            delay = partial(self.disk_delays.__getitem__, node_id)
            world = replace(world, offload=SlowDisk(world.offload, self.rng, delay))
        node.start(self._live(node_id, world))

    async def _live(self, node_id: int, world: World) -> None:
        listener = Listener(partial(self._on_applied, node_id))
        try:
            async with quorum_node(world, self._configs[node_id], listener, self._kind) as quorum:
                if node_id in self.wiped:
                    raise InvariantViolated(
                        f"voter {node_id} starts with an empty directory (rule 19)"
                    )
                assert isinstance(quorum, ObservedQuorum)
                self.quorums[node_id] = quorum
                await self._work(quorum)
        except* NodeCrashed:
            # The simulated drive stopped at a write: the node is down until a fault restarts it.
            self.trace.note("stopped")
            self.quorums.pop(node_id, None)
        except* KafkaError as errors:
            self._refuse(node_id, errors)

    def _refuse(self, node_id: int, errors: BaseExceptionGroup[KafkaError]) -> None:
        """A node with damaged files may stop and refuse to start; a healthy one may not."""
        codes = {error.code for error in _leaves(errors)}
        if node_id not in self.may_refuse or not codes <= DAMAGE_CODES:
            raise errors
        self.trace.note("refuses", self.nodes[node_id].name)
        self.quorums.pop(node_id, None)
        self.refused.add(node_id)
        self.report.refused += 1

    def _on_applied(
        self, node_id: int, image: MetadataImage, _delta: MetadataDelta
    ) -> Iterable[None]:
        self.history.add_image(self.nodes[node_id].name, image)
        self.trace.note("applied", image.offset)
        return [None] * self._steps_per_image

    def on_leader(self, node_id: int, epoch: int) -> bool:
        """Return True if the epoch had no leader yet."""
        name = self.nodes[node_id].name
        is_new = self.history.add_leader(name, epoch)
        if is_new:
            self.trace.note("leads", name, epoch)
            self.faults.after_election(node_id)
        return is_new

    async def _work(self, quorum: ObservedQuorum) -> None:
        if self.members is None or quorum.node_id == OBSERVER:
            await self._write(quorum)
        else:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write(quorum))
                tasks.create_task(self.members.change(quorum))

    # Writes

    async def _write(self, quorum: Quorum) -> None:
        """Write settings while this node is the leader, sometimes several concurrently."""
        while True:
            await asyncio.sleep(self.rng.random() * 0.4)
            if quorum.is_leader and not self.is_settling:
                await asyncio.gather(
                    *(self._write_setting(quorum) for _ in range(self.rng.choice((1, 1, 3))))
                )

    async def _write_setting(self, quorum: Quorum) -> None:
        self.written += 1
        name = f"number.{self.written}"
        record = ConfigRecord(
            resource_type=RESOURCE[0], resource_name=RESOURCE[1], name=name, value=name
        )
        try:
            offset = await quorum.append((record,))
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
        else:
            self.history.acknowledged.append(name)
            self.trace.note("acknowledged", offset, name)
            self.faults.after_acknowledgement(quorum.node_id)
            if name not in quorum.image.configs.get(RESOURCE, {}):
                raise InvariantViolated(f"{name} is acknowledged but not in the leader's image")

    # Recovery

    async def _recover(self) -> None:
        """A write is accepted, then all healthy nodes get everything, then the refused ones."""
        before = len(self.history.acknowledged)
        await self._within(lambda: len(self.history.acknowledged) > before, "accepted a write")
        self.is_settling = True
        await self._within(self._all_have, "replicated all acknowledged writes to all nodes")
        if self.members is not None:
            await self._recover_members(self.members)
            return
        while self.refused:
            for node_id in sorted(self.refused):
                self._replace(node_id)
            await self._within(self._all_have, "replicated all to the nodes formatted again")
        if self.rng.random() < REPLACED_AT_THE_END:
            await self._replace_a_voter()

    async def _recover_members(self, members: Members) -> None:
        """Voters whose directory is gone are removed, and others take their places. Sometimes every
        voter is then replaced by another controller, one by one, with writes in between."""
        # A controller that gets a long snapshot byte by byte never catches up with the writes.
        self.piece_bytes = METADATA_FETCH_BYTES
        for quorum in self.quorums.values():
            quorum.set_piece_bytes(self.piece_bytes)
        await self._within(lambda: members.is_settled, "removed the voters that are gone")
        if self.rng.random() < ALL_REPLACED_AT_THE_END:
            leader = next(each for each in self.quorums.values() if each.is_leader)
            members.leaving = set(leader.voter_set.keys)
            while not members.is_settled:
                await self._replace_next(members)
        self.is_settling = True
        await self._within(self._all_have, "replicated all to the new voters")
        await self._within(self._agree_on_voters, "replicated the voters to all nodes")

    async def _replace_next(self, members: Members) -> None:
        """Empty a controller that has left, so that it may join again as another one. Then wait
        until another voter has left."""
        left = [
            node_id
            for node_id, key in members.keys.items()
            if key in members.leaving and members.may_lose(node_id)
        ]
        if left:
            self._replace(self.rng.choice(left))
        before, removed = len(self.history.acknowledged), members.removed
        self.is_settling = False
        await self._within(
            lambda: (
                len(self.history.acknowledged) > before
                and (members.removed > removed or members.is_settled)
            ),
            "replaced a voter",
        )
        self.is_settling = True

    def _agree_on_voters(self) -> bool:
        """Return True if all nodes have the same voters, none of them gone."""
        sets = {quorum.voter_set.keys for quorum in self.quorums.values()}
        return len(sets) == 1 and self.members is not None and not self.members.lost & set(*sets)

    def _replace(self, node_id: int) -> None:
        """Start a node with an empty directory."""
        self.nodes[node_id].restart()
        self.reformat(node_id)
        self.start(node_id)

    async def _replace_a_voter(self) -> None:
        """Replace a voter by an empty one. Meanwhile so many others are down that it makes the
        majority, or the leader's latest snapshot is damaged. It must get everything."""
        await self._within(self._has_leader, "elected a leader")
        leader = next(quorum.node_id for quorum in self.quorums.values() if quorum.is_leader)
        replaced, *others = self.rng.sample(
            [voter for voter in self.ids if voter != leader], k=len(self.ids) - 1
        )
        down: list[int] = []
        if self.rng.random() < 0.5:
            down = others[: (len(self.ids) - 1) // 2]
            for node_id in down:
                self.nodes[node_id].crash()
                self.quorums.pop(node_id, None)
        else:
            self.faults.damage_latest_snapshot(leader)
        self._replace(replaced)
        before = len(self.history.acknowledged)
        self.is_settling = False
        await self._within(lambda: len(self.history.acknowledged) > before, "accepted a write")
        self.is_settling = True
        for node_id in down:
            self.restart(node_id)
        await self._within(self._all_have, "replicated all to the replaced voter")

    def _has_leader(self) -> bool:
        return any(quorum.is_leader for quorum in self.quorums.values())

    async def _within(self, condition: Callable[[], bool], outcome: str) -> None:
        deadline = asyncio.get_running_loop().time() + RECOVERED_WITHIN_S
        while not condition():
            await asyncio.sleep(0.05)
            if asyncio.get_running_loop().time() > deadline:
                states = {
                    node_id: (
                        quorum.leader_id,
                        quorum.epoch,
                        quorum.high_watermark,
                        quorum.log_end_offset,
                    )
                    for node_id, quorum in self.quorums.items()
                }
                raise InvariantViolated(
                    f"the quorum has not {outcome} within {RECOVERED_WITHIN_S:g} s (rule 25); "
                    f"node: (leader, epoch, high watermark, log end offset) {states}, refused: "
                    f"{sorted(self.refused)}"
                )

    def _all_have(self) -> bool:
        """Return True if the image of every node that has not refused has all acknowledged
        settings."""
        if {*self.quorums, *self.refused} != set(self.nodes):
            return False
        return all(
            name in quorum.image.configs.get(RESOURCE, {})
            for quorum in self.quorums.values()
            for name in self.history.acknowledged
        )


def _leaves(errors: BaseExceptionGroup[KafkaError]) -> list[KafkaError]:
    leaves: list[KafkaError] = []
    for error in errors.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
