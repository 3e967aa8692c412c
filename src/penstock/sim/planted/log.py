"""Bugs planted in the logs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from penstock.errors import KafkaError
from penstock.log.log import Log
from penstock.log.producers.state import ProducerStates
from penstock.sim.harness import replaced


def damage_stops_the_node() -> AbstractContextManager[None]:
    """A damaged segment that retention or compaction finds stops the broker."""

    def stop(_log: Log, error: KafkaError) -> None:
        raise error

    return replaced(Log, "mark_damaged", lambda _original: stop)


def producers_survive_truncation() -> AbstractContextManager[None]:
    """A truncation keeps the producer state of the batches that it removes."""

    def make(cut_off: Any) -> Any:
        def keep(log: Log, offset: int, _producers: ProducerStates | None = None) -> None:
            cut_off(log, offset, log.producers)

        return keep

    return replaced(Log, "cut_off", make)


PLANTED_LOG = (damage_stops_the_node, producers_survive_truncation)
