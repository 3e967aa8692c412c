"""Building a step of the group machine: records are replayed as they are written, and every change
is noted for undo. PURE.

All durable changes of groups and offsets go through `write` or, when a transaction ends,
`end_transaction`. Soft state (a classic group's
rebalance in progress, log lines about a rebalance) changes in place after `edit`; deadlines change
through `set_deadline` and `cancel_deadline`.
"""

from __future__ import annotations

from functools import partial
from typing import Never

from penstock.coordinator.classic.records import replay_group
from penstock.coordinator.consumer.replay import replay as replay_consumer
from penstock.coordinator.consumer.replay import save as save_consumer
from penstock.coordinator.groups.table import DeadlineKey, Group, GroupTable
from penstock.coordinator.offsets.committed import replay_marker, replay_offset
from penstock.coordinator.runtime.step import (
    PLAIN,
    RECORD_OVERHEAD_BYTES,
    Batch,
    Now,
    Record,
    Reply,
    Step,
    Ticket,
    Undo,
)
from penstock.ids import NO_PRODUCER_ID, NO_UUID, Buffer, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES
from penstock.protocol.internal.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.internal.coordinator_logs import GROUP_LOG

# Values are written in the versions that Kafka 4 writes, so that its tools and older brokers read
# the log.
_GROUP_METADATA_VERSION = 3


def record(key: object, value: object | None) -> Record:
    """Encode a record; a value of None makes a tombstone."""
    return Record(
        GROUP_LOG.encode_key(key),
        None if value is None else GROUP_LOG.encode_value(value, _version(value)),
    )


def _version(value: object) -> int | None:
    """Return the version to write. None, the newest, is right for the consumer protocol's records,
    which have one version each."""
    if isinstance(value, GroupMetadataValue):
        return _GROUP_METADATA_VERSION
    if isinstance(value, OffsetCommitValue):
        # Only version 1 has the expiry time, and only version 4 the topic id.
        return 1 if value.expire_timestamp != -1 else 3 if value.topic_id == NO_UUID else 4
    return None


def decode(key: Buffer, value: Buffer | None) -> tuple[object, object | None]:
    """Decode a record. UnknownRecord: its type or version is not known."""
    typed = GROUP_LOG.decode_key(key)
    return typed, None if value is None else GROUP_LOG.decode_value(typed, value)


def replay(groups: GroupTable, key: object, value: object | None, batch: Batch = PLAIN) -> None:
    """Apply one record to the table: while loading, and for every record that a step writes. Only
    offsets are written in transactions."""
    match key, value:
        case (
            (OffsetCommitKey() | LegacyOffsetCommitKey()),
            (OffsetCommitValue() | LegacyOffsetCommitValue() | None),
        ):
            producer_id = batch.producer_id if batch.transactional else NO_PRODUCER_ID
            replay_offset(groups, key, value, producer_id)
        case GroupMetadataKey(), (GroupMetadataValue() | None):
            replay_group(groups, key, value)
        case _:
            replay_consumer(groups, key, value)


class GroupStep:
    """One decision over `groups`, at one time. `batch` is the batch that it writes."""

    __slots__ = (
        "_size",
        "batch",
        "groups",
        "log_lines",
        "now_ms",
        "records",
        "replies",
        "undo",
        "wall_ms",
    )

    def __init__(self, groups: GroupTable, now: Now, batch: Batch = PLAIN) -> None:
        self.groups = groups
        self.batch = batch
        self.now_ms, self.wall_ms = now
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.log_lines: list[str] = []
        self.undo = Undo()
        self._size = BATCH_HEADER_BYTES

    def write(self, key: object, value: object | None) -> None:
        """Write a record, or with None a tombstone, and replay it."""
        written = record(key, value)
        self.records.append(written)
        self._size += len(written.key) + len(written.value or b"") + RECORD_OVERHEAD_BYTES
        if isinstance(key, OffsetCommitKey):
            self._save_offset(key.group, TopicPartition(key.topic, key.partition))
        elif isinstance(key, GroupMetadataKey):
            self.save_group(key.group)
        else:
            save_consumer(self.undo, self.groups, key, deletes=value is None)
        replay(self.groups, key, value, self.batch)

    def end_transaction(self) -> None:
        """Replay the marker that the step's batch is."""
        marker, producer_id = self.batch.marker, self.batch.producer_id
        if marker is not None:
            offsets, by_id = self.groups.offsets, self.groups.by_id
            for group_id in offsets.pending.groups_of(producer_id) - by_id.keys():
                self.save_group(group_id)
            self.undo.add(offsets.saved_transaction(producer_id))
            replay_marker(self.groups, producer_id, commit=marker.commit)

    def delete(self, *keys: object) -> None:
        for key in keys:
            self.write(key, None)

    @property
    def size(self) -> int:
        """An upper bound of the size of the step's batch before compression."""
        return self._size

    def has_room(self, size: int) -> bool:
        """Return True if the step's batch can hold records of this size besides those written. How
        far a batch can be compressed is not known before."""
        settings = self.groups.settings
        return settings.compresses or self._size + size <= settings.max_batch_bytes

    def edit(self, group: Group) -> None:
        """Save the group before its soft state changes."""
        self.save_group(group.id)

    def save_group(self, group_id: str) -> None:
        if self.undo.first(group_id):
            self.undo.save(self.groups.by_id, group_id)
            group = self.groups.by_id.get(group_id)
            if group is not None:
                group.save(self.undo)

    def _save_offset(self, group_id: str, partition: TopicPartition) -> None:
        """The first offset of an unknown group creates a group that only commits."""
        if group_id not in self.groups.by_id:
            self.save_group(group_id)
        offsets = self.groups.offsets
        self.undo.add(offsets.saved(group_id, partition))
        if self.batch.transactional or offsets.is_unstable(group_id, partition):
            self.undo.add(offsets.pending.saved(group_id, partition))

    def set_deadline(self, key: DeadlineKey, due_ms: int) -> None:
        deadlines = self.groups.deadlines
        self.undo.add(partial(deadlines.restore, key, deadlines.get(key)))
        deadlines.set(key, due_ms)

    def cancel_deadline(self, key: DeadlineKey) -> None:
        deadlines = self.groups.deadlines
        due_ms = deadlines.get(key)
        if due_ms is not None:
            self.undo.add(partial(deadlines.set, key, due_ms))
            deadlines.cancel(key)

    def revert(self) -> None:
        """Undo everything: the request is refused."""
        self.undo.revert()
        self.records.clear()
        self.replies.clear()
        self.log_lines.clear()
        self._size = BATCH_HEADER_BYTES

    def reply(self, ticket: Ticket, response: object) -> None:
        self.replies.append(Reply(ticket, response))

    def log(self, line: str) -> None:
        """Add a line for the node's log. Names come from clients, so control characters are
        escaped: none may begin a line."""
        self.log_lines.append(
            line if line.isprintable() else line.encode("unicode_escape").decode()
        )

    def build(self, immediate: bool = False) -> Step[Never]:
        return Step(
            records=tuple(self.records),
            replies=tuple(self.replies),
            batch=self.batch,
            log_lines=tuple(self.log_lines),
            immediate=immediate,
            undo=self.undo,
        )
