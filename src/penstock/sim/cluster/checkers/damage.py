"""Rules of damaged files, lost power and a quorum that must recover."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.sim.cluster.events import (
    DiskFails,
    FileDamaged,
    FileRepaired,
    MajorityStarted,
    NodeEnded,
    PowerLostTogether,
    RecordAcknowledged,
)
from penstock.sim.cluster.history import History, Violation


def damage_is_contained(history: History) -> Iterator[Violation]:
    """Rule 20: a node ends only if its disk fails, or if metadata or files of a whole log directory
    are damaged. A damaged file of a partition ends neither its node nor another one."""
    may_end: dict[int, None] = {}
    for event in history.events:
        match event:
            case DiskFails(_at, node):
                may_end[node] = None
            case FileDamaged(_at, node, _path, None):
                may_end[node] = None
            case FileRepaired(_at, node):
                may_end.pop(node, None)
            case NodeEnded(at, node, error) if node not in may_end:
                yield Violation(at, f"node {node} ended: {error}")
            case _:
                pass


def synced_records_survive_power_loss(history: History) -> Iterator[Violation]:
    """Rule 24: a record that was acknowledged with acks=all, and that every replica had synced,
    survives any loss of power."""
    values = {
        partition: {value for _offset, value in records}
        for partition, records in history.final_records.items()
    }
    for loss in history.of(PowerLostTogether):
        for write in history.of(RecordAcknowledged):
            if (
                write.at < loss.at
                and history.producers[write.producer].acks_all
                and 0 <= write.offset < loss.synced.get(write.partition, 0)
                and write.partition in values
                and write.value not in values[write.partition]
                and write.partition.topic not in history.unclean_topics
            ):
                text = f"{write.value!r} at {write.offset} of {write.partition} was synced by all"
                yield Violation(loss.at, f"{text}, but a loss of power lost it")


def majorities_commit(history: History) -> Iterator[Violation]:
    """Rule 25: a majority of voters that is up commits, also if one of it must fetch a snapshot."""
    for event in history.of(MajorityStarted):
        if event.committed_after_s is None:
            yield Violation(
                event.at, f"a majority of the voters did not commit within {event.within_s:g} s"
            )
