"""Bugs planted in the logs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from penstock.errors import KafkaError
from penstock.log import directory, moving
from penstock.log.index import TxnIndex
from penstock.log.log import Log
from penstock.log.producers.state import ProducerStates
from penstock.log.saved_offsets import SavedOffsets
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


def too_many_files_break_the_disk() -> AbstractContextManager[None]:
    """EMFILE and ENFILE take a log directory offline."""
    return replaced(directory, "TOO_MANY_FILES", lambda _original: frozenset())


def moves_continue_without_comparison() -> AbstractContextManager[None]:
    """A move that continues after a restart trusts what an earlier process copied."""
    return replaced(moving, "_is_copy", lambda _original: lambda _future, _log: True)


def deleted_logs_leave_their_offsets() -> AbstractContextManager[None]:
    """The checkpoints of a log that is created again may list the offsets of the deleted one."""

    return replaced(SavedOffsets, "deleted", lambda _original: lambda _offsets, _partition: None)


def aborted_transactions_are_not_synced() -> AbstractContextManager[None]:
    """Recovery and truncation leave the index of aborted transactions in the page cache."""
    return replaced(TxnIndex, "file", lambda _original: property(lambda _index: None))


# What each needs of a run: a flipped bit in a sealed segment, then a retention check or a choice
# for compaction; a follower that truncates under idempotent load; EMFILE from the drive; a restart
# during a move to another log directory, and a truncation before it.
PLANTED_LOG = (
    damage_stops_the_node,
    producers_survive_truncation,
    too_many_files_break_the_disk,
    moves_continue_without_comparison,
)

# Bugs that runs of log stores catch.
PLANTED_STORE = (deleted_logs_leave_their_offsets, aborted_transactions_are_not_synced)
