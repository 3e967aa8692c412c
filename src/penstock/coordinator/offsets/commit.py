"""OffsetCommit and TxnOffsetCommit. PURE.

Both write the same records. Those of TxnOffsetCommit are in a transactional batch: they are pending
until the marker of their transaction (`offsets/pending.py`).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.rebalance import extend_session
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import Caller, Group, GroupSettings
from penstock.coordinator.offsets.committed import Committed
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_TIMESTAMP, NO_UUID
from penstock.protocol.internal.classic_group_records import OffsetCommitKey
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

# Topics are named by their ids from this version on.
_TOPIC_ID_VERSION = 10
# A missing group is GROUP_ID_NOT_FOUND from this version on.
_GROUP_NOT_FOUND_VERSION = 9
# The least that a record of an offset takes besides the names of the group and the topic.
_LEAST_RECORD_BYTES = 40
# The group's retention decides.
_NO_RETENTION = -1

Partition = OffsetCommitRequest.Topic.Partition | TxnOffsetCommitRequest.Topic.Partition


class _Topic(NamedTuple):
    """The name is None if the topic does not exist."""

    name: str | None
    id: UUID
    partitions: tuple[Partition, ...]


class _Commit(NamedTuple):
    """What both requests say. The epoch is a generation or a member epoch."""

    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int
    topics: list[_Topic]
    version: int
    retention_ms: int = _NO_RETENTION


def commit(step: GroupStep, request: OffsetCommitRequest, caller: Caller) -> OffsetCommitResponse:
    by_id = caller.version >= _TOPIC_ID_VERSION
    names = step.groups.image.topic_names
    topics = [
        _Topic(
            names.get(topic.topic_id) if by_id else _known(step, topic.name),
            topic.topic_id,
            topic.partitions,
        )
        for topic in request.topics
    ]
    codes = _write(
        step,
        _Commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            topics,
            caller.version,
            request.retention_time_ms,
        ),
        ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    return OffsetCommitResponse(topics=tuple(map(_result, request.topics, codes)))


def commit_in_transaction(
    step: GroupStep, request: TxnOffsetCommitRequest, caller: Caller
) -> TxnOffsetCommitResponse:
    """The step's batch is that of the transaction. As in Kafka, the records have no topic ids."""
    topics = [
        _Topic(_known(step, topic.name), NO_UUID, topic.partitions) for topic in request.topics
    ]
    codes = _write(
        step,
        _Commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            topics,
            caller.version,
        ),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    return TxnOffsetCommitResponse(topics=tuple(map(_txn_result, request.topics, codes)))


def _known(step: GroupStep, name: str) -> str | None:
    return name if name in step.groups.image.topics else None


def _write(step: GroupStep, asked: _Commit, unknown_topic: ErrorCode) -> list[list[ErrorCode]]:
    """Write the offsets that may be committed; return the codes of the partitions of each topic."""
    _check_size(step, asked)
    exists = any(topic.name is not None for topic in asked.topics)
    group_error = _group_error(step, asked) if exists else ErrorCode.NONE
    codes = []
    for topic in asked.topics:
        if topic.name is None or group_error:
            code = unknown_topic if topic.name is None else group_error
            codes.append([code] * len(topic.partitions))
        else:
            codes.append(
                [
                    _write_offset(step, asked, topic, topic.name, partition)
                    for partition in topic.partitions
                ]
            )
    return codes


def _check_size(step: GroupStep, asked: _Commit) -> None:
    """Refuse a commit that no batch can hold before its records are made: that would block the
    event loop for seconds."""
    settings = step.groups.settings
    size = sum(
        len(topic.partitions) * (len(asked.group_id) + len(topic.name) + _LEAST_RECORD_BYTES)
        + sum(_metadata_length(partition, settings) for partition in topic.partitions)
        for topic in asked.topics
        if topic.name is not None
    )
    if size > settings.max_batch_bytes and not settings.compresses:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a commit of group {asked.group_id} needs more than max.message.bytes of the "
            f"offsets topic, {settings.max_batch_bytes}",
        )


def _metadata_length(partition: Partition, settings: GroupSettings) -> int:
    """Return 0 for metadata that is refused."""
    length = len(partition.committed_metadata or "")
    return length if length <= settings.offset_metadata_max_bytes else 0


def _group_error(step: GroupStep, asked: _Commit) -> ErrorCode:
    """Return NONE if the sender may commit. A commit outside of a transaction extends the session
    of a classic member."""
    group, transactional = step.groups.by_id.get(asked.group_id), step.batch.transactional
    if group is None:
        if asked.epoch < 0:
            return ErrorCode.NONE
        has_code = asked.version >= _GROUP_NOT_FOUND_VERSION and not transactional
        return ErrorCode.GROUP_ID_NOT_FOUND if has_code else ErrorCode.ILLEGAL_GENERATION
    try:
        group.check_commit(
            asked.member_id,
            asked.instance_id,
            asked.epoch,
            asked.version,
            transactional=transactional,
        )
    except KafkaError as error:
        if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
            return error.code
        if _has_owned_all(step, group, asked):
            return ErrorCode.NONE
        # Producers do not know STALE_MEMBER_EPOCH.
        return ErrorCode.ILLEGAL_GENERATION if transactional else error.code
    if (
        not transactional
        and isinstance(group, ClassicGroup)
        and group.state in (State.STABLE, State.PREPARING)
    ):
        extend_session(step, group, group.members[asked.member_id])
    return ErrorCode.NONE


def _has_owned_all(step: GroupStep, group: Group, asked: _Commit) -> bool:
    """KIP-1251: a member that does not know its new epoch yet may commit partitions that it has
    owned since the epoch that it knows."""
    member = group.members.get(asked.member_id) if isinstance(group, ConsumerGroup) else None
    if member is None or not 0 <= asked.epoch < member.epoch:
        return False
    for topic in asked.topics:
        if topic.name is not None:
            topic_id = step.groups.image.topics[topic.name].id
            since = {**member.revoking.get(topic_id, {}), **member.assigned.get(topic_id, {})}
            if not all(
                asked.epoch >= since.get(partition.partition_index, member.epoch)
                for partition in topic.partitions
            ):
                return False
    return True


def _write_offset(
    step: GroupStep, asked: _Commit, topic: _Topic, name: str, partition: Partition
) -> ErrorCode:
    metadata = partition.committed_metadata or ""
    if len(metadata) > step.groups.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    retention_ms = asked.retention_ms
    committed = Committed(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=step.wall_ms,
        expire_timestamp_ms=(
            NO_TIMESTAMP if retention_ms == _NO_RETENTION else step.wall_ms + retention_ms
        ),
        topic_id=topic.id,
    )
    key = OffsetCommitKey(group=asked.group_id, topic=name, partition=partition.partition_index)
    step.write(key, committed.value())
    return ErrorCode.NONE


def _result(topic: OffsetCommitRequest.Topic, codes: list[ErrorCode]) -> OffsetCommitResponse.Topic:
    return OffsetCommitResponse.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponse.Topic.Partition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition, code in zip(topic.partitions, codes, strict=True)
        ),
    )


def _txn_result(
    topic: TxnOffsetCommitRequest.Topic, codes: list[ErrorCode]
) -> TxnOffsetCommitResponse.Topic:
    return TxnOffsetCommitResponse.Topic(
        name=topic.name,
        partitions=tuple(
            TxnOffsetCommitResponse.Topic.Partition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition, code in zip(topic.partitions, codes, strict=True)
        ),
    )
