"""Bugs planted in the logs."""

from __future__ import annotations

from contextlib import AbstractContextManager

from penstock.errors import KafkaError
from penstock.log.log import Log
from penstock.sim.harness import replaced


def damage_stops_the_node() -> AbstractContextManager[None]:
    """A damaged segment that retention or compaction finds stops the broker."""

    def stop(_log: Log, error: KafkaError) -> None:
        raise error

    return replaced(Log, "mark_damaged", lambda _original: stop)


PLANTED_LOG = (damage_stops_the_node,)
