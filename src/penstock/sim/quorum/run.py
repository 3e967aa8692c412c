"""A quorum of three or five controllers and an observer under faults (invariants 16, 17, 18).

Whoever leads writes one numbered setting after the other. Crashes, power loss, partitions (one-way
too), cut connections, pauses, slow disks and clock jumps come at random; then they end, and
everything must heal within a bound.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import METADATA_FETCH_BYTES
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.raft.messages import FetchSnapshot
from penstock.raft.roles import Leader
from penstock.sim.log.model import Broken
from penstock.sim.quorum.history import RESOURCE, History
from penstock.sim.quorum.node import Watch, format_quorum_node, quorum_config, quorum_node
from penstock.sim.quorum.slow_disk import SlowDisk
from penstock.world import World
from penstock.world.sim import Node, NodeCrashed, Simulation

PORT = 9093
OBSERVER = 9
FAULTS = 8
# How often an election, and how often an acknowledgement, is the moment at which something breaks.
AMBUSHES = (0.5, 0.05)
HEALED_WITHIN_S = 15.0


@dataclass(slots=True)
class QuorumReport:
    """What a run did: one without elections and acknowledged writes shows nothing."""

    digest: str = ""
    elections: int = 0
    acknowledged: int = 0
    snapshots_fetched: int = 0


def run_quorum(seed: int) -> QuorumReport:
    """One run. Broken where an invariant does not hold."""
    simulation = Simulation(seed, trace_lines=40)
    run = QuorumRun(simulation)
    try:
        simulation.run(run.main())
    except BaseException as error:
        tail = "\n".join(simulation.trace.lines())
        raise Broken(
            f"quorum seed {seed}: {error!r}\nthe last events:\n{tail}\nagain with: "
            f"run_quorum({seed})"
        ) from error
    run.report.digest = simulation.trace.digest()
    run.report.elections = len(run.history.leaders)
    run.report.acknowledged = len(run.history.acknowledged)
    return run.report


class Watched(Quorum):
    """Tells of every leader, also of those that never commit anything."""

    run: QuorumRun

    async def open(self) -> None:
        self._log.fetch_bytes = self.run.fetch_bytes
        await super().open()

    async def _download(self, wanted: FetchSnapshot) -> None:
        self.run.report.snapshots_fetched += 1
        await super()._download(wanted)

    def _stepped(self) -> None:
        super()._stepped()
        if isinstance(self._raft.role, Leader):
            self.run.leads(self.node_id, self._raft.epoch)


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
        self.is_over = False
        self.context = contextvars.copy_context()
        self.fetch_bytes = self.rng.choice((1, METADATA_FETCH_BYTES))
        self.slow = {node_id: self.rng.choice((0.0, 0.0, 0.0, 0.1, 0.5)) for node_id in self.nodes}
        self.settings = {
            "metadata.log.max.record.bytes.between.snapshots": self.rng.choice(
                (200, 1_000, 20_000_000)
            ),
            "log.segment.bytes": self.rng.choice((2_000, 1_000_000)),
        }

    async def main(self) -> None:
        for node_id in self.nodes:
            self._format(node_id)
            self._start(node_id)
        for _fault in range(FAULTS):
            await asyncio.sleep(self.rng.random() ** 2 * 2)
            self._fault()
        self._end_faults()
        await self._heal()

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
        world, slow = node.world, self.slow[node_id]
        if slow:
            world = replace(world, offload=SlowDisk(world.offload, self.rng, slow))
        node.start(self._live(node_id, world))

    async def _live(self, node_id: int, world: World) -> None:
        watch = Watch(partial(self._applied, node_id))
        kind = type("WatchedHere", (Watched,), {"run": self})
        try:
            async with quorum_node(world, self._config(node_id), watch, kind) as quorum:
                self.quorums[node_id] = quorum
                await self._write(quorum)
        except* NodeCrashed:
            # Stopped at some change to its disk: as good as dead, until it is restarted.
            self.trace.note("stopped")
            self.quorums.pop(node_id, None)

    def _applied(self, node_id: int, image: MetadataImage, _delta: MetadataDelta) -> Iterable[None]:
        self.history.applied(self.nodes[node_id].name, image)
        self.trace.note("applied", image.offset)
        return ()

    async def _write(self, quorum: Quorum) -> None:
        """Whoever leads writes, several at a time now and then."""
        while True:
            await asyncio.sleep(self.rng.random() * 0.4)
            if quorum.is_leader and not self.settling:
                await asyncio.gather(
                    *(self._write_one(quorum) for _ in range(self.rng.choice((1, 1, 3))))
                )

    async def _write_one(self, quorum: Quorum) -> None:
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
            self._ambush(AMBUSHES[1], 0.0, partial(self._lose_power_and_isolate, quorum.node_id))
            if name not in quorum.image.configs.get(RESOURCE, {}):
                raise Broken(f"{name} was acknowledged, but is not in the leader's image")

    # Faults

    def leads(self, node_id: int, epoch: int) -> None:
        name = self.nodes[node_id].name
        if self.history.leads(name, epoch):
            self.trace.note("leads", name, epoch)
            self._ambush(
                AMBUSHES[0],
                self.rng.choice((0.0, 0.01, 0.03)),
                partial(self._isolate_new_leader, node_id),
            )

    def _ambush(self, often: float, within_s: float, strike: Callable[[], None]) -> None:
        """The worst moment for a fault is just after something was promised."""
        if not self.settling and not self.is_over and self.rng.random() < often:
            pause = self.rng.random() * within_s
            asyncio.get_running_loop().call_later(pause, self._strike, strike, context=self.context)

    def _strike(self, strike: Callable[[], None]) -> None:
        if not self.is_over:
            strike()
            asyncio.get_running_loop().call_later(self.rng.random() * 3, self.network.heal)

    def _isolate_new_leader(self, leader: int) -> None:
        """Those that voted for it are killed, and asked again."""
        self._isolate(leader)
        for node_id in self.voters:
            if node_id != leader and self.rng.random() < 0.5:
                self._power_cycle(node_id)

    def _lose_power_and_isolate(self, leader: int) -> None:
        """What was acknowledged must be on the disks of those that are left, be they its followers
        or some of them without the leader."""
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
        other = self.rng.choice([one.name for one in self.nodes.values() if one.name != name])
        dice = self.rng.random()
        if dice < 0.35:
            self._crash_or_restart(node_id)
        elif dice < 0.45:
            others = [
                one.name
                for one in self.nodes.values()
                if one.name != name and self.rng.random() < 0.7
            ]
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
        """The observer now and then without anything that it had: it is no voter, and may."""
        world = self.nodes[node_id].restart()
        if node_id == OBSERVER and self.rng.random() < 0.5:
            world.disk.remove_tree("/d")
            self._format(node_id)
        self._start(node_id)

    def _end_faults(self) -> None:
        """Everybody runs, and everybody reaches everybody."""
        self.is_over = True
        self.network.heal()
        for node_id, node in self.nodes.items():
            self.slow[node_id] = 0.0
            node.drive.stop_after(None)
            if node.alive and node_id in self.quorums and self.rng.random() < 0.5:
                node.resume()
            else:
                self._restart(node_id)

    # The end

    async def _heal(self) -> None:
        before = len(self.history.acknowledged)
        await self._within(lambda: len(self.history.acknowledged) > before, "taken a write")
        self.settling = True
        await self._within(
            lambda: self._all_have(self.history.acknowledged),
            "given every node what was acknowledged",
        )

    async def _within(self, happened: Callable[[], bool], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + HEALED_WITHIN_S
        while not happened():
            await asyncio.sleep(0.05)
            if asyncio.get_running_loop().time() > deadline:
                where = {
                    node_id: (q.leader_id, q.epoch, q.high_watermark, q.log_end_offset)
                    for node_id, q in self.quorums.items()
                }
                raise Broken(
                    f"the quorum has not {what} within {HEALED_WITHIN_S:g} s; (leader, epoch, "
                    f"watermark, end): {where}"
                )

    def _all_have(self, names: list[str]) -> bool:
        """Nothing acknowledged is lost: it is, or will soon be, everywhere."""
        images = [quorum.image.configs.get(RESOURCE, {}) for quorum in self.quorums.values()]
        return len(images) == len(self.nodes) and all(
            name in image for image in images for name in names
        )
