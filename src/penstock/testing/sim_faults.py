"""Faults of a simulated cluster at random moments, one after the other.

| fault | what happens, for up to three seconds |
|---|---|
| kill | a broker's process is killed, and starts again |
| pause | a broker's process stands still |
| partition | a broker is cut from the other brokers |
| cut | a broker is cut from a machine that is no broker |
| reset | all connections between a broker and a machine that is no broker break at once |
| slow | a broker computes slowly |
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from penstock.sim.cluster.nodes import ClusterNode
from penstock.world.sim import Simulation

FAULTS = ("kill", "pause", "partition", "cut", "reset", "slow")
# The time before a fault, and how long it lasts.
_BEFORE_S, _LASTS_S = (0.05, 1.5), (0.05, 3.0)
_SLOW_CALLBACK_S = 0.002


class FaultSchedule:
    """`run` makes faults until `end`, or until it is cancelled."""

    def __init__(
        self,
        simulation: Simulation,
        nodes: Sequence[ClusterNode],
        faults: Sequence[str],
        note: Callable[[str], None],
    ) -> None:
        self._simulation = simulation
        self._rng: random.Random = simulation.stream("faults")
        self._nodes = nodes
        self._faults = tuple(faults)
        self._note = note
        self._ended = False

    async def run(self) -> None:
        while self._faults and await self._continues(_BEFORE_S):
            node = self._rng.choice(self._nodes)
            self._begin(self._rng.choice(self._faults), node)
            if await self._continues(_LASTS_S):
                self._undo(node)

    async def _continues(self, between_s: tuple[float, float]) -> bool:
        """Wait for a random time. Return whether there are still faults after it."""
        await asyncio.sleep(self._rng.uniform(*between_s))
        return not self._ended

    def end(self) -> None:
        """Undo the current fault, and make no more."""
        self._ended = True
        for node in self._nodes:
            self._undo(node)

    def _begin(self, fault: str, node: ClusterNode) -> None:
        network, brokers = self._simulation.network, {other.name for other in self._nodes}
        others = [name for name in sorted(self._simulation.nodes) if name not in brokers]
        client = self._rng.choice(others)
        if fault == "kill":
            node.crash(power_loss=False)
        elif fault == "pause":
            node.pause()
        elif fault == "partition":
            self._note(f"{node.name} is cut from the other brokers")
            network.partition([node.name], brokers - {node.name})
        elif fault == "cut":
            self._note(f"{node.name} is cut from {client}")
            network.partition([node.name], [client])
        elif fault == "reset":
            self._note(f"the connections between {node.name} and {client} break")
            network.cut(node.name, client)
        else:
            self._note(f"{node.name} is slow")
            node.machine.set_speed(_SLOW_CALLBACK_S)

    def _undo(self, node: ClusterNode) -> None:
        self._simulation.network.heal()
        node.resume()
        if not node.is_up:
            node.restart()
        node.machine.set_speed()
