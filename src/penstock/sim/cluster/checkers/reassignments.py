"""Rules of reassignments: how they end."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.sim.cluster.events import ReassignmentEnded
from penstock.sim.cluster.history import History, Violation


def reassignments_end_as_requested(history: History) -> Iterator[Violation]:
    """Rule 27: a complete reassignment has its target replicas, a cancelled one those before it."""
    for event in history.of(ReassignmentEnded):
        if not any(sorted(event.replicas) == sorted(allowed) for allowed in event.allowed):
            expected = " or ".join(str(list(allowed)) for allowed in event.allowed)
            yield Violation(
                event.at,
                f"{event.partition} has the replicas {list(event.replicas)} after its "
                f"reassignment, but {expected} were requested",
            )
