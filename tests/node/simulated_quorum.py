"""A simulated quorum whose nodes a test starts, stops and damages one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from penstock.config.node import NodeConfig
from penstock.metadata.image import BROKER
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.sim.quorum.node import Listener, format_quorum_node, quorum_config, quorum_node
from penstock.world.sim import Node, Simulation

RESOURCE = (BROKER, "1")
OBSERVER = 9
# Virtual seconds. A test that waits so long has failed.
LONG_S = 60.0


class SimulatedQuorum:
    """Voters 1, 2 and 3, and the observer 9 if a test starts it. `quorums` has the running nodes,
    `errors` those that have failed."""

    def __init__(self, seed: int, settings: Mapping[str, object]) -> None:
        self.simulation = Simulation(seed)
        self.quorums: dict[int, Quorum] = {}
        self.errors: dict[int, BaseException] = {}
        self.listeners: dict[int, Listener] = {}
        self._settings = settings
        self._voters = {node_id: f"c{node_id}:9093" for node_id in (1, 2, 3)}

    def node(self, node_id: int) -> Node:
        return self.simulation.node(f"c{node_id}")

    def config(self, node_id: int) -> NodeConfig:
        listener = f"c{node_id}:9092" if node_id == OBSERVER else None
        return quorum_config(node_id, self._voters, "/d", self._settings, listener=listener)

    def format(self, node_id: int) -> None:
        """Empty the directory of a node that does not run, and format it."""
        world = self.node(node_id).world
        if world.disk.exists("/d"):
            world.disk.remove_tree("/d")
        format_quorum_node(world, self.config(node_id))
        world.disk.sync_dir("/")

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            node = self.node(node_id)
            if not node.alive:
                node.restart()
            if not node.world.disk.exists("/d"):
                self.format(node_id)
            node.start(self._live(node_id))

    async def _live(self, node_id: int) -> None:
        listener = self.listeners.get(node_id, Listener())
        world = self.node(node_id).world
        try:
            async with quorum_node(world, self.config(node_id), listener) as quorum:
                self.quorums[node_id] = quorum
                await asyncio.Event().wait()
        except ExceptionGroup as error:
            self.errors[node_id] = error
        finally:
            self.quorums.pop(node_id, None)

    def kill(self, node_id: int) -> None:
        self.node(node_id).crash()
        self.quorums.pop(node_id, None)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def active(self) -> Quorum:
        await self.until(lambda: any(quorum.is_leader for quorum in self.quorums.values()))
        return next(quorum for quorum in self.quorums.values() if quorum.is_leader)


def setting(name: str, size: int = 30) -> tuple[object, ...]:
    """Return the records that set a setting of broker 1 to a value of this size."""
    return (
        ConfigRecord(
            resource_type=RESOURCE[0], resource_name=RESOURCE[1], name=name, value="v" * size
        ),
    )


def settings_of(quorum: Quorum) -> list[str]:
    return list(quorum.image.configs.get(RESOURCE, {}))
