"""Tools for tests of programs that use Kafka: clusters with faults, a pytest plugin, a stand-in for
testcontainers' KafkaContainer, and simulation.

docs/TESTING.md describes them. Nothing is imported before it is used: pytest imports this package
in every session.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.clients import ClientConfigs
    from penstock.testing.cluster import ProcessCluster
    from penstock.testing.containers import KafkaContainer
    from penstock.testing.simulation import SimulatedCluster, SimulationError, simulate

__all__ = [
    "ClientConfigs",
    "KafkaContainer",
    "ProcessCluster",
    "SimulatedCluster",
    "SimulationError",
    "simulate",
]

_MODULES = {
    "ClientConfigs": "clients",
    "KafkaContainer": "containers",
    "ProcessCluster": "cluster",
    "SimulatedCluster": "simulation",
    "SimulationError": "simulation",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    return getattr(import_module(f"penstock.testing.{_MODULES[name]}"), name)
