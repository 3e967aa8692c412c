"""What every kind of fault gets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from penstock.client.client import Client
from penstock.node.node import Node
from penstock.sim.cluster.events import Event, FaultEvent
from penstock.sim.cluster.faults.targets import POLL_S, FaultTargets
from penstock.sim.cluster.history import History
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.observers.partitions import PartitionObserver
from penstock.sim.cluster.spec import ClusterSpec
from penstock.world.sim import Fabric
from penstock.world.sim import Node as Machine

Inject = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FaultEnv:
    """`administrator` is the machine of a client that faults use, and `connected` connects it."""

    spec: ClusterSpec
    nodes: Mapping[str, ClusterNode]
    history: History
    observer: PartitionObserver
    rng: random.Random
    targets: FaultTargets
    now: Callable[[], float]
    network: Fabric
    administrator: Machine
    connected: Callable[[Machine], AbstractAsyncContextManager[Client]]

    def note(self, description: str) -> None:
        self.history.events.append(FaultEvent(self.now(), description))

    def node_of(self, node_id: int) -> ClusterNode:
        return self.nodes[self.spec.name_of(node_id)]

    def process_of(self, node: ClusterNode) -> Node | None:
        return self.observer.processes.get(node.config.node_id)

    @property
    def quorum_leader(self) -> ClusterNode | None:
        """The node that leads the quorum, if there is exactly one."""
        leaders = [
            node
            for node in self.nodes.values()
            if node.is_up
            and (process := self.process_of(node)) is not None
            and process.quorum.is_leader
        ]
        return leaders[0] if len(leaders) == 1 else None

    async def wait_for(self, seconds: float, condition: Callable[[], bool]) -> bool:
        """Wait until a condition holds. Return False if it does not in time."""
        deadline = self.now() + seconds
        while not condition() and self.now() < deadline:
            await asyncio.sleep(POLL_S)
        return condition()

    async def wait_event(
        self, matches: Callable[[Event], bool], count: int, within_s: float
    ) -> Event | None:
        """Return the event at which `matches` was true for the `count`-th time from now on, or None
        if that does not happen in time. The caller continues in the turn of the event loop after
        it, at the same virtual time."""
        found: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        left = count

        def on_event(event: Event) -> None:
            nonlocal left
            if not found.done() and matches(event):
                left -= 1
                if left == 0:
                    found.set_result(event)

        self.history.events.listeners.append(on_event)
        try:
            async with asyncio.timeout(within_s):
                return await found
        except TimeoutError:
            return None
        finally:
            self.history.events.listeners.remove(on_event)
