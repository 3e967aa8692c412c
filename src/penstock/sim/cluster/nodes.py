"""The nodes of a simulated cluster: machines that run Penstock, started, stopped, killed and
paused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.config.node import NodeConfig
from penstock.errors import KafkaError
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world.sim import Node as Machine
from penstock.world.sim import Simulation

CLUSTER_ID = "simulated-cluster-id00"


class ClusterNode:
    """One machine. Its process may end with a KafkaError, as a real node's does. Any other
    exception fails the run."""

    def __init__(
        self,
        machine: Machine,
        config: NodeConfig,
        note: Callable[[str], None],
        on_end: Callable[[int, str], None],
    ) -> None:
        """`on_end` is called with the node id and the error of a process that ends by itself."""
        self.machine = machine
        self.config = config
        self.name = machine.name
        self.is_paused = False
        self._note = note
        self._on_end = on_end
        self._stop = asyncio.Event()
        self._process: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self.machine.alive and self._process is not None and not self._process.done()

    def format(self, cluster_id: str) -> None:
        disk, rng = self.machine.world.disk, self.machine.world.rng
        format_directories(
            disk, rng, self.config, cluster_id, ignore_formatted=False, say=lambda _line: None
        )
        disk.sync_dir("/")

    def start(self) -> None:
        self._stop = asyncio.Event()
        self._process = self.machine.start(self._serve(self._stop))

    async def _serve(self, stop: asyncio.Event) -> None:
        try:
            async with serving(self.machine.world, self.config) as (node, _bootstrap):
                stopping, failing = (
                    asyncio.create_task(stop.wait()),
                    asyncio.create_task(node.supervisor.wait_failed()),
                )
                done, waiting = await asyncio.wait(
                    [stopping, failing], return_when=asyncio.FIRST_COMPLETED
                )
                for task in waiting:
                    task.cancel()
                for task in done:
                    task.result()
        except KafkaError as error:
            self._on_end(self.config.node_id, str(error))

    def crash(self, *, power_loss: bool) -> None:
        self._note(f"{self.name} {'loses power' if power_loss else 'is killed'}")
        self.is_paused = False
        self.machine.crash(power_loss=power_loss)

    def restart(self) -> None:
        """Start a new process on what survived, with a repaired disk."""
        self._note(f"{self.name} starts")
        self.is_paused = False
        self.machine.drive.heal()
        self.machine.drive.stop_after(None)
        self.machine.restart()
        self.start()

    async def stop(self, within_s: float) -> bool:
        """Stop the process cleanly. Return whether it ended in time."""
        self._note(f"{self.name} is asked to stop")
        self._stop.set()
        if self._process is not None:
            await asyncio.wait([self._process], timeout=within_s)
        return not self.is_up

    def pause(self) -> None:
        self._note(f"{self.name} is paused")
        self.is_paused = True
        self.machine.pause()

    def resume(self) -> None:
        if self.is_paused:
            self._note(f"{self.name} is resumed")
            self.is_paused = False
            self.machine.resume()


def build_nodes(
    simulation: Simulation,
    configs: dict[str, NodeConfig],
    note: Callable[[str], None],
    on_end: Callable[[int, str], None],
) -> dict[str, ClusterNode]:
    nodes = {
        name: ClusterNode(simulation.node(name), config, note, on_end)
        for name, config in configs.items()
    }
    for node in nodes.values():
        node.format(CLUSTER_ID)
    return nodes
