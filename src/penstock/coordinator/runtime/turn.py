"""One turn of a shard: what the time is, and what comes of it. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.groups.records import offset_record, offset_tombstone
from penstock.coordinator.groups.table import Groups
from penstock.coordinator.offsets.committed import Committed
from penstock.coordinator.runtime.step import Answer, Record, Step, Ticket
from penstock.ids import TopicPartition


class Turn:
    """Whoever writes a record has changed `groups` accordingly: replaying it must give the same."""

    __slots__ = ("answers", "groups", "now_ms", "records", "told", "wall_ms")

    def __init__(self, groups: Groups, now_ms: int, wall_ms: int) -> None:
        self.groups = groups
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.records: list[Record] = []
        self.answers: list[Answer] = []
        self.told: list[str] = []

    def write(self, *records: Record) -> None:
        self.records.extend(records)

    def answer(self, ticket: Ticket, response: object) -> None:
        self.answers.append(Answer(ticket, response))

    def tell(self, line: str) -> None:
        """Names come from clients: none may begin a line of its own."""
        self.told.append(line if line.isprintable() else line.encode("unicode_escape").decode())

    def put_offset(self, group_id: str, partition: TopicPartition, committed: Committed) -> None:
        """A group that only commits comes to be by its first offset."""
        if group_id not in self.groups.by_id:
            self.groups.by_id[group_id] = ClassicGroup(group_id)
        self.groups.offsets.put(group_id, partition, committed)
        self.write(offset_record(group_id, partition.topic, partition.partition, committed.value()))

    def remove_offset(self, group_id: str, partition: TopicPartition) -> None:
        self.groups.offsets.remove(group_id, partition)
        self.write(offset_tombstone(group_id, partition.topic, partition.partition))

    def step(self, at_once: bool = False) -> Step:
        return Step(tuple(self.records), tuple(self.answers), tuple(self.told), at_once)
