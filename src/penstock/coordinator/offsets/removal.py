"""Removal of offsets and groups: OffsetDelete, DeleteGroups, deleted topics and expiry. PURE.

The amount of work is unbounded, except that of OffsetDelete. So it is queued in `Removals`, which
does one bounded piece per step; the cursor stays between steps. A piece that is refused is done
again after `REFUSED_STEP_RETRY_MS`. A piece writes at most `MAX_REMOVALS_PER_STEP` records and
`MAX_REMOVAL_BYTES`, so that its batch is too large only if the topic hardly takes any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import Group, GroupTable
from penstock.coordinator.offsets.committed import Committed
from penstock.coordinator.runtime.step import RECORD_OVERHEAD_BYTES, Ticket
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_TIMESTAMP, TopicPartition
from penstock.limits import (
    EXPIRY_OFFSETS_PER_STEP,
    MAX_REMOVAL_BYTES,
    MAX_REMOVALS_PER_STEP,
    REFUSED_STEP_RETRY_MS,
)
from penstock.protocol.internal.classic_group_records import OffsetCommitKey
from penstock.protocol.messages.delete_groups import DeleteGroupsResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def delete_offsets(step: GroupStep, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """KafkaError: no batch can hold the tombstones. It has changed nothing."""
    group = step.groups.by_id.get(request.group_id)
    if group is None:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    try:
        group.check_delete_offsets()
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    _check_size(step, request)
    return OffsetDeleteResponse(
        topics=tuple(_delete_topic(step, group, topic) for topic in request.topics)
    )


def _check_size(step: GroupStep, request: OffsetDeleteRequest) -> None:
    """Refuse a request before its records are made: that would block the event loop."""
    offsets, group_id = step.groups.offsets, request.group_id
    size = sum(
        RECORD_OVERHEAD_BYTES + len(group_id) + len(topic.name)
        for topic in request.topics
        for partition in topic.partitions
        if offsets.is_known(group_id, TopicPartition(topic.name, partition.partition_index))
    )
    if not step.has_room(size):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the deletion of offsets of group {group_id} takes more than "
            f"max.message.bytes of the offsets topic, {step.groups.settings.max_batch_bytes}",
        )


def _delete_topic(
    step: GroupStep, group: Group, topic: OffsetDeleteRequest.Topic
) -> OffsetDeleteResponse.Topic:
    code = ErrorCode.NONE
    if topic.name not in step.groups.image.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif group.is_subscribed_to(topic.name):
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    else:
        for partition in topic.partitions:
            _delete(step, group.id, TopicPartition(topic.name, partition.partition_index))
    return OffsetDeleteResponse.Topic(
        name=topic.name,
        partitions=tuple(
            OffsetDeleteResponse.Topic.Partition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition in topic.partitions
        ),
    )


def _delete(step: GroupStep, group_id: str, partition: TopicPartition) -> None:
    if step.groups.offsets.is_known(group_id, partition):
        step.delete(
            OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
        )


class _Deletion(NamedTuple):
    """A DeleteGroups request of one group, in progress."""

    group_id: str
    partitions: deque[TopicPartition]
    ticket: Ticket


class _DeletedOffset(NamedTuple):
    """A partition of a deleted topic, and the identities of its offset and of its pending offsets.
    A later commit, for a new topic of the same name, is another offset."""

    group_id: str
    partition: TopicPartition
    offsets: tuple[Committed, ...]


class _Expiry(NamedTuple):
    """How far an expiry has come: the groups that were begun, and the partitions of the last of
    them that were looked at."""

    group_ids: Sequence[str]
    groups_done: int = 0
    partitions: Sequence[TopicPartition] = ()
    partitions_done: int = 0


class Removals:
    """The removals in progress, and the next expiry of offsets."""

    def __init__(self, groups: GroupTable, expiry_due_ms: int) -> None:
        self._groups = groups
        self._deletions: dict[str, _Deletion] = {}
        self._deleted_offsets: deque[_DeletedOffset] = deque()
        self._expiry_due_ms = expiry_due_ms
        self._expiry: _Expiry | None = None
        # After a refusal: nothing is due before.
        self._retry_at_ms = 0

    def next_ms(self, now_ms: int) -> int:
        """Return when `run` is due next."""
        due_ms = now_ms if self._deletions or self._deleted_offsets else self._expiry_due_ms
        return max(due_ms, self._retry_at_ms)

    def is_deleting(self, group_id: str) -> bool:
        return group_id in self._deletions

    def run(self, step: GroupStep) -> None:
        """Do one bounded piece of the work that is due."""
        if step.now_ms < self._retry_at_ms:
            return
        retry_at_ms = step.now_ms + REFUSED_STEP_RETRY_MS
        step.undo.add(partial(setattr, self, "_retry_at_ms", retry_at_ms))
        if self._deletions:
            self._delete_group(step, next(iter(self._deletions.values())))
        elif self._deleted_offsets:
            self._delete_offsets(step)
        elif step.now_ms >= self._expiry_due_ms:
            self._expire(step)

    # DeleteGroups

    def delete_group(self, step: GroupStep, group_id: str, ticket: Ticket) -> None:
        """Delete an empty group with its offsets. The reply is a DeleteGroupsResponse.Result; it
        leaves with the last step."""
        group = self._groups.by_id.get(group_id)
        try:
            if group is None:
                code = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
                raise KafkaError(code, f"there is no group {group_id}")
            group.check_delete()
        except KafkaError as error:
            step.reply(ticket, _deleted(group_id, error.code))
            return
        offsets = self._groups.offsets
        pending = offsets.pending.partitions(group_id)
        partitions = deque({**offsets.of_group(group_id), **dict.fromkeys(pending)})
        self._delete_group(step, _Deletion(group_id, partitions, ticket))

    def _delete_group(self, step: GroupStep, deletion: _Deletion) -> None:
        group_id, partitions, ticket = deletion
        step.undo.save(self._deletions, group_id)
        while partitions and _has_room(step):
            partition = partitions.popleft()
            step.undo.add(partial(partitions.appendleft, partition))
            _delete(step, group_id, partition)
        if partitions:
            self._deletions[group_id] = deletion
            return
        self._deletions.pop(group_id, None)
        group = self._groups.by_id.get(group_id)
        if group is not None:
            step.delete(*group.tombstone_keys())
        step.reply(ticket, _deleted(group_id, ErrorCode.NONE))

    # Deleted topics

    def topics_deleted(self, deleted: Collection[str]) -> None:
        """Queue the offsets of deleted topics."""
        if deleted:
            offsets = self._groups.offsets
            self._deleted_offsets.extend(
                _DeletedOffset(group_id, partition, tuple(offsets.known(group_id, partition)))
                for group_id, partition in chain(offsets, offsets.pending)
                if partition.topic in deleted
            )

    def _delete_offsets(self, step: GroupStep) -> None:
        while self._deleted_offsets and _has_room(step):
            entry = self._deleted_offsets.popleft()
            step.undo.add(partial(self._deleted_offsets.appendleft, entry))
            group_id, partition, former = entry
            known = self._groups.offsets.known(group_id, partition)
            # A tombstone deletes all of them, so a later offset keeps the former ones. A marker may
            # have committed a pending offset meanwhile.
            if all(any(offset is deleted for deleted in former) for offset in known):
                _delete(step, group_id, partition)

    # Expiry

    def _expire(self, step: GroupStep) -> None:
        """Look at a bounded number of offsets of all groups. The next step continues after them."""
        step.undo.save(vars(self), "_expiry")
        step.undo.save(vars(self), "_expiry_due_ms")
        groups = self._groups
        group_ids, groups_done, partitions, done = self._expiry or _Expiry(list(groups.by_id))
        for _ in range(EXPIRY_OFFSETS_PER_STEP):
            if not _has_room(step):
                break
            if done < len(partitions):
                self._expire_offset(step, group_ids[groups_done - 1], partitions[done])
                done += 1
            elif groups_done < len(group_ids):
                partitions, done = list(groups.offsets.of_group(group_ids[groups_done])), 0
                groups_done += 1
            else:
                interval_ms = groups.settings.offsets_retention_check_interval_ms
                self._expiry, self._expiry_due_ms = None, step.now_ms + interval_ms
                return
            if done == len(partitions):
                _delete_if_unused(step, group_ids[groups_done - 1])
        self._expiry = _Expiry(group_ids, groups_done, partitions, done)

    def _expire_offset(self, step: GroupStep, group_id: str, partition: TopicPartition) -> None:
        offsets, group = self._groups.offsets, self._groups.by_id.get(group_id)
        committed = offsets.get(group_id, partition)
        if (
            group is not None
            and committed is not None
            and _is_expired(step, group, committed, partition.topic)
            and not offsets.is_unstable(group_id, partition)
        ):
            _delete(step, group_id, partition)


def _has_room(step: GroupStep) -> bool:
    limit = min(MAX_REMOVAL_BYTES, step.groups.settings.max_batch_bytes // 2)
    return len(step.records) < MAX_REMOVALS_PER_STEP and step.size < limit


def _delete_if_unused(step: GroupStep, group_id: str) -> None:
    """Delete a group without members and offsets."""
    offsets, group = step.groups.offsets, step.groups.by_id.get(group_id)
    if (
        group is not None
        and group.is_empty
        and not offsets.of_group(group_id)
        and not offsets.is_in_transaction(group_id)
    ):
        step.delete(*group.tombstone_keys())


def _is_expired(step: GroupStep, group: Group, committed: Committed, topic: str) -> bool:
    since_ms = group.retained_since_ms(committed.commit_timestamp_ms)
    if since_ms is None:
        return False
    expires_ms = committed.expire_timestamp_ms
    if expires_ms == NO_TIMESTAMP:
        expires_ms = since_ms + step.groups.settings.offsets_retention_ms
    return step.wall_ms >= expires_ms and not group.is_subscribed_to(topic)


def _deleted(group_id: str, code: ErrorCode) -> DeleteGroupsResponse.Result:
    return DeleteGroupsResponse.Result(group_id=group_id, error_code=code)
