"""Whom a fault may strike in a simulated cluster, and how hard.

Never more is taken than the cluster promises to stand: unless every record is synced before it is
acknowledged, at most one node loses unsynced data before the cluster is whole again, and then
nobody else dies uncleanly. (A broker that comes back without a clean shutdown leaves ISR and ELR,
as in Kafka: with its last peer's log lost at the same time, the controller could not know whose log
is whole.)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from penstock.sim.cluster.health import trouble
from penstock.sim.cluster.history import History, Struck
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.observer import Observer
from penstock.sim.cluster.shape import Shape
from penstock.world.sim import Simulation

_LOOK_S = 0.1


class Victims:
    def __init__(
        self,
        simulation: Simulation,
        shape: Shape,
        nodes: dict[str, ClusterNode],
        history: History,
        observer: Observer,
    ) -> None:
        self._network = simulation.network
        self._rng: random.Random = simulation.stream("faults")
        self._shape = shape
        self._nodes = nodes
        self._history = history
        self._observer = observer
        self._now = simulation.loop.time
        # Nodes that died uncleanly, and those that lost data, since the cluster was last whole.
        # Dicts for their order.
        self._unclean: dict[str, None] = {}
        self._lossy: dict[str, None] = {}
        # Those whose disk stops at some change: as good as dead, and about to be killed.
        self._dying: dict[str, None] = {}

    def _say(self, what: str) -> None:
        self._history.events.append(Struck(self._now(), what))

    # Whom, and how long

    def _victim(self) -> ClusterNode:
        """Rather one that matters: a leader, or the active controller."""
        lives = [
            self._observer.lives[node.config.node_id]
            for node in self._nodes.values()
            if node.config.node_id in self._observer.lives
        ]
        dice = self._rng.random()
        chosen = lives
        if dice < 0.5:
            chosen = [
                life
                for life in lives
                if any(partition.is_leader for partition in life.replicas.partitions.values())
            ]
        elif dice < 0.75:
            chosen = [life for life in lives if life.quorum.is_leader]
        if not chosen:
            return self._rng.choice(list(self._nodes.values()))
        return self._nodes[self._shape.name_of(self._rng.choice(chosen).config.node_id)]

    async def _a_while(self) -> None:
        await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 0.6, 2.5)))

    async def _notice_recovery(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._unclean and not self._dying and self._is_whole():
                self._unclean.clear()
                self._lossy.clear()

    def _is_whole(self) -> bool:
        return trouble(self._nodes.values(), self._observer) is None

    async def _within(self, seconds: float, happened: Callable[[], bool]) -> bool:
        deadline = self._now() + seconds
        while not happened() and self._now() < deadline:
            await asyncio.sleep(_LOOK_S)
        return happened()

    def _may_die(self, node: ClusterNode) -> bool:
        return self._shape.synced or all(name == node.name for name in self._lossy)

    def _may_lose_data(self, node: ClusterNode) -> bool:
        return self._shape.synced or all(name == node.name for name in self._unclean)

    def _kill(self, node: ClusterNode, *, may_lose_power: bool = True) -> None:
        if not node.machine.alive or not self._may_die(node):
            return
        loses_power = (
            (self._shape.synced or may_lose_power)
            and self._may_lose_data(node)
            and self._rng.random() < 0.5
        )
        self._unclean[node.name] = None
        if loses_power:
            self._loses_data(node)
        node.crash(power_loss=loses_power)

    def _loses_data(self, node: ClusterNode) -> None:
        self._unclean[node.name] = self._lossy[node.name] = None
        self._observer.lost_data(node.config.node_id)
        if not self._shape.synced:
            self._history.promised.update(
                {topic.name: topic.min_insync > 1 for topic in self._shape.topics}
            )

    def _start(self, node: ClusterNode) -> None:
        if not node.is_up:
            node.restart()

    def _leads(self, node: ClusterNode) -> bool:
        life = self._observer.lives.get(node.config.node_id)
        written = [name for topic in self._shape.topics for name in topic.all_partitions]
        return life is not None and any(
            name in life.replicas.partitions and life.replicas.partitions[name].is_leader
            for name in written
        )
