"""Penstock: a distributed event streaming platform that speaks Kafka's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.start import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    """Import `Cluster` on first use, so that commands without a broker start quickly."""
    if name == "Cluster":
        from penstock.start import Cluster

        return Cluster
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
