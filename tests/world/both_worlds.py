"""Types of scenarios that run in both worlds, and how they run in the simulated one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.world import World
from penstock.world.sim import Simulation

Scenario = Callable[[World], Coroutine[Any, Any, Any]]
Play = Callable[[Scenario], Any]


def play_simulated(scenario: Scenario) -> Any:
    simulation = Simulation(seed=1)
    node = simulation.node("n1")
    return simulation.run(node.run(scenario(node.world)))
