"""Counts the leaders that the active controller elects (Kafka's ControllerStats)."""

from __future__ import annotations

from penstock.metadata.image import NO_LEADER
from penstock.metadata.topics_delta import NO_LEADER_CHANGE
from penstock.protocol.internal.metadata_topics import PartitionChangeRecord

_RECOVERING = 1


class ElectionCounts:
    """An unclean election makes a replica the leader that was not in sync."""

    __slots__ = ("elections", "unclean")

    def __init__(self) -> None:
        self.elections = 0
        self.unclean = 0

    def count(self, records: tuple[object, ...]) -> None:
        for record in records:
            if (
                isinstance(record, PartitionChangeRecord)
                and record.leader != NO_LEADER_CHANGE
                and record.leader != NO_LEADER
            ):
                self.elections += 1
                self.unclean += record.leader_recovery_state == _RECOVERING
