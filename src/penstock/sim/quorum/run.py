"""Runs a quorum of three or five controllers and an observer under faults (rules 16, 17, 18).

The leader writes one numbered setting after the other. Crashes, power loss, network partitions
(also one-way), cut connections, pauses, slow disks and clock jumps occur at random. Then the faults
end, and the quorum must recover within a bound (rule 25).
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import METADATA_FETCH_BYTES
from penstock.metadata.image import BROKER, MetadataDelta, MetadataImage
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.raft.messages import FetchSnapshot
from penstock.raft.states import LeaderState
from penstock.sim.harness import InvariantViolated
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
OBSERVER = 9
FAULTS = 8
# The probability that a fault follows an election, and that one follows an acknowledgement.
FAULT_AFTER_ELECTION = 0.5
FAULT_AFTER_ACKNOWLEDGEMENT = 0.05
RECOVERED_WITHIN_S = 15.0

# The resource whose settings the run writes.
RESOURCE = (BROKER, "1")


@dataclass(slots=True)
class QuorumReport:
    """What a run did: a run without elections and acknowledged writes proves nothing."""

    digest: str = ""
    elections: int = 0
    truncations: int = 0
    acknowledged: int = 0
    snapshots_fetched: int = 0

    @property
    def counts(self) -> bool:
        return min(self.elections, self.acknowledged) > 0


def run_quorum(seed: int) -> QuorumReport:
    """Run one seed. Raises InvariantViolated if an invariant does not hold."""
    simulation = Simulation(seed, trace_lines=40)
    run = QuorumRun(simulation)
    try:
        simulation.run(run.main())
    except BaseException as error:
        tail = "\n".join(simulation.trace.lines())
        raise InvariantViolated(
            f"quorum seed {seed}: {error!r}\nthe end of the trace:\n{tail}\n"
            f"repeat with: python -m penstock.sim --quorum --seed {seed}"
        ) from error
    run.report.digest = simulation.trace.digest()
    run.report.elections = len(run.history.leaders)
    run.report.acknowledged = len(run.history.acknowledged)
    return run.report


@dataclass(slots=True)
class History:
    """Everything that any node has reported during the run, checked as it arrives."""

    leaders: dict[int, str] = field(default_factory=dict)
    # Offset -> the settings after the record at this offset, as the first node committed them.
    committed: dict[int, Mapping[str, str]] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)

    def add_leader(self, node: str, epoch: int) -> bool:
        """Return True if the epoch had no leader yet."""
        is_new = epoch not in self.leaders
        other = self.leaders.setdefault(epoch, node)
        if other != node:
            raise InvariantViolated(f"{other} and {node} both lead epoch {epoch} (rule 16)")
        return is_new

    def add_image(self, node: str, image: MetadataImage) -> None:
        settings = image.configs.get(RESOURCE, {})
        before = self.committed.setdefault(image.offset, settings)
        if before != settings:
            raise InvariantViolated(
                f"{node} committed other settings up to offset {image.offset} than a node before "
                "it (rule 17)"
            )


class ObservedQuorum(Quorum):
    """Reports every leader, also one that never commits a record, and snapshot downloads."""

    run: QuorumRun

    async def open(self) -> None:
        self._log.fetch_max_bytes = self.run.fetch_max_bytes
        await super().open()

    async def _download_snapshot(self, effect: FetchSnapshot) -> None:
        self.run.report.snapshots_fetched += 1
        await super()._download_snapshot(effect)

    def _on_step(self) -> None:
        super()._on_step()
        if isinstance(self._raft.state, LeaderState):
            self.run.on_leader(self.node_id, self._raft.epoch)


class QuorumRun:
    def __init__(self, simulation: Simulation) -> None:
        self.rng: random.Random = simulation.stream("workload")
        self.network = simulation.network
        self.trace = simulation.trace
        self.history = History()
        self.report = QuorumReport()
        self.ids = range(1, self.rng.choice((3, 3, 5)) + 1)
        self.voters = {node_id: simulation.node(f"c{node_id}") for node_id in self.ids}
        self.nodes: dict[int, Node] = {**self.voters, OBSERVER: simulation.node("o9")}
        self.quorums: dict[int, Quorum] = {}
        self.written = 0
        self.settling = False
        self.faults_ended = False
        self.context = contextvars.copy_context()
        self.fetch_max_bytes = self.rng.choice((1, METADATA_FETCH_BYTES))
        self.disk_delays = {
            node_id: self.rng.choice((0.0, 0.0, 0.0, 0.1, 0.5)) for node_id in self.nodes
        }
        self.settings = {
            "metadata.log.max.record.bytes.between.snapshots": self.rng.choice(
                (200, 1_000, 20_000_000)
            ),
            "metadata.log.segment.bytes": self.rng.choice((2_000, 1_000_000)),
            "metadata.max.retention.bytes": 0,
        }

    async def main(self) -> None:
        for node_id in self.nodes:
            self._format(node_id)
            self._start(node_id)
        for _fault in range(FAULTS):
            await asyncio.sleep(self.rng.random() ** 2 * 2)
            self._fault()
        self._end_faults()
        await self._recover()

    # Nodes

    def _format(self, node_id: int) -> None:
        world = self.nodes[node_id].world
        format_quorum_node(world, self._config(node_id))
        world.disk.sync_dir("/")

    def _config(self, node_id: int) -> NodeConfig:
        voters = {voter: f"c{voter}:{PORT}" for voter in self.ids}
        return quorum_config(
            node_id,
            voters,
            "/d",
            self.settings,
            listener="o9:9092" if node_id == OBSERVER else None,
        )

    def _start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        self.quorums.pop(node_id, None)
        world, delay = node.world, self.disk_delays[node_id]
        if delay:
            world = replace(world, offload=SlowDisk(world.offload, self.rng, delay))
        node.start(self._live(node_id, world))

    async def _live(self, node_id: int, world: World) -> None:
        listener = Listener(partial(self._on_applied, node_id))
        kind = type("ObservedQuorumOfRun", (ObservedQuorum,), {"run": self})
        try:
            async with quorum_node(world, self._config(node_id), listener, kind) as quorum:
                self.quorums[node_id] = quorum
                await self._write(quorum)
        except* NodeCrashed:
            # The simulated drive stopped at a write: the node is down until a fault restarts it.
            self.trace.note("stopped")
            self.quorums.pop(node_id, None)

    def _on_applied(
        self, node_id: int, image: MetadataImage, _delta: MetadataDelta
    ) -> Iterable[None]:
        self.history.add_image(self.nodes[node_id].name, image)
        self.trace.note("applied", image.offset)
        return ()

    async def _write(self, quorum: Quorum) -> None:
        """Write settings while this node is the leader, sometimes several concurrently."""
        while True:
            await asyncio.sleep(self.rng.random() * 0.4)
            if quorum.is_leader and not self.settling:
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
            self._maybe_fault(
                FAULT_AFTER_ACKNOWLEDGEMENT,
                0.0,
                partial(self._lose_power_and_isolate, quorum.node_id),
            )
            if name not in quorum.image.configs.get(RESOURCE, {}):
                raise InvariantViolated(f"{name} is acknowledged but not in the leader's image")

    # Faults

    def on_leader(self, node_id: int, epoch: int) -> None:
        name = self.nodes[node_id].name
        if self.history.add_leader(name, epoch):
            self.trace.note("leads", name, epoch)
            self._maybe_fault(
                FAULT_AFTER_ELECTION,
                self.rng.choice((0.0, 0.01, 0.03)),
                partial(self._isolate_new_leader, node_id),
            )

    def _maybe_fault(self, probability: float, within_s: float, inject: Callable[[], None]) -> None:
        """Inject a fault soon after a promise, when it is most likely to find a bug."""
        if not self.settling and not self.faults_ended and self.rng.random() < probability:
            pause = self.rng.random() * within_s
            asyncio.get_running_loop().call_later(pause, self._inject, inject, context=self.context)

    def _inject(self, inject: Callable[[], None]) -> None:
        if not self.faults_ended:
            inject()
            asyncio.get_running_loop().call_later(self.rng.random() * 3, self.network.heal)

    def _isolate_new_leader(self, leader: int) -> None:
        """Isolate the leader and power-cycle voters, which then get another vote request."""
        self._isolate(leader)
        for node_id in self.voters:
            if node_id != leader and self.rng.random() < 0.5:
                self._power_cycle(node_id)

    def _lose_power_and_isolate(self, leader: int) -> None:
        """Power-cycle the followers, or the leader and some of them, and isolate another voter.

        The acknowledged write must be on the disks of a majority.
        """
        if self.rng.random() < 0.5:
            cycled = [node_id for node_id in self.voters if node_id != leader]
        else:
            cycled = [
                node_id for node_id in self.voters if node_id == leader or self.rng.random() < 0.3
            ]
        for node_id in cycled:
            self._power_cycle(node_id)
        left = [node_id for node_id in self.voters if node_id not in cycled]
        if left:
            self._isolate(self.rng.choice(left))

    def _isolate(self, node_id: int) -> None:
        self.network.partition(
            [self.nodes[node_id].name],
            [node.name for other, node in self.nodes.items() if other != node_id],
        )

    def _power_cycle(self, node_id: int) -> None:
        if self.nodes[node_id].alive:
            self.nodes[node_id].crash(power_loss=True)
        self.nodes[node_id].restart()
        self._start(node_id)

    def _fault(self) -> None:
        node_id = self.rng.choice(list(self.nodes))
        name, node = self.nodes[node_id].name, self.nodes[node_id]
        names = [peer.name for peer in self.nodes.values() if peer.name != name]
        other = self.rng.choice(names)
        dice = self.rng.random()
        if dice < 0.35:
            self._crash_or_restart(node_id)
        elif dice < 0.45:
            others = [peer for peer in names if self.rng.random() < 0.7]
            self.network.partition([name], others)
        elif dice < 0.55:
            self.network.block(name, other)
        elif dice < 0.70:
            self.network.heal()
        elif dice < 0.78:
            self.network.cut(name, other)
        elif dice < 0.84:
            node.clock.jump(self.rng.randrange(-100_000, 100_000))
        elif dice < 0.92 and node.alive:
            node.pause()
            asyncio.get_running_loop().call_later(self.rng.random() * 4, self._resume, node)
        elif node.alive:
            node.drive.stop_after(self.rng.randrange(60))

    def _resume(self, node: Node) -> None:
        if node.alive:
            node.resume()

    def _crash_or_restart(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.alive:
            node.crash(power_loss=self.rng.random() < 0.7)
            if self.rng.random() < 0.5:
                return
        self._restart(node_id)

    def _restart(self, node_id: int) -> None:
        """Restart a node; the observer sometimes with an empty directory, since it is no voter."""
        world = self.nodes[node_id].restart()
        if node_id == OBSERVER and self.rng.random() < 0.5:
            world.disk.remove_tree("/d")
            self._format(node_id)
        self._start(node_id)

    def _end_faults(self) -> None:
        """Start or resume all nodes, and heal the network."""
        self.faults_ended = True
        self.network.heal()
        for node_id, node in self.nodes.items():
            self.disk_delays[node_id] = 0.0
            node.drive.stop_after(None)
            if node.alive and node_id in self.quorums and self.rng.random() < 0.5:
                node.resume()
            else:
                self._restart(node_id)

    # Recovery

    async def _recover(self) -> None:
        before = len(self.history.acknowledged)
        await self._within(lambda: len(self.history.acknowledged) > before, "accepted a write")
        self.settling = True
        await self._within(
            lambda: self._all_have(self.history.acknowledged),
            "replicated all acknowledged writes to all nodes",
        )

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
                    f"the quorum has not {outcome} within {RECOVERED_WITHIN_S:g} s; node: (leader, "
                    f"epoch, high watermark, log end offset) {states}"
                )

    def _all_have(self, names: list[str]) -> bool:
        """Return True if the image of every node has these settings."""
        images = [quorum.image.configs.get(RESOURCE, {}) for quorum in self.quorums.values()]
        return len(images) == len(self.nodes) and all(
            name in image for image in images for name in names
        )
