"""OffsetCommit. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.rebalance import extend_session
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import Caller, Group, GroupSettings
from penstock.coordinator.offsets.committed import Committed
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_TIMESTAMP
from penstock.protocol.internal.classic_group_records import OffsetCommitKey
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

# Topics are named by their ids from this version on.
_TOPIC_ID_VERSION = 10
# A missing group is GROUP_ID_NOT_FOUND from this version on.
_GROUP_NOT_FOUND_VERSION = 9
# The least that a record of an offset takes besides the names of the group and the topic.
_LEAST_RECORD_BYTES = 40

Topic = OffsetCommitRequest.Topic
Partition = OffsetCommitRequest.Topic.Partition


def commit(step: GroupStep, request: OffsetCommitRequest, caller: Caller) -> OffsetCommitResponse:
    names = [_topic_name(step, topic, caller.version) for topic in request.topics]
    _check_size(step, request, names)
    group_error = _group_error(step, request, names, caller) if any(names) else ErrorCode.NONE
    unknown = (
        ErrorCode.UNKNOWN_TOPIC_ID
        if caller.version >= _TOPIC_ID_VERSION
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    topics = []
    for topic, name in zip(request.topics, names, strict=True):
        if name is None or group_error:
            codes = [unknown if name is None else group_error] * len(topic.partitions)
        else:
            codes = [
                _commit_partition(step, request, topic, name, partition)
                for partition in topic.partitions
            ]
        topics.append(_result(topic, codes))
    return OffsetCommitResponse(topics=tuple(topics))


def _check_size(step: GroupStep, request: OffsetCommitRequest, names: list[str | None]) -> None:
    """Refuse a commit that no batch can hold before its records are made: that would block the
    event loop for seconds."""
    settings = step.groups.settings
    size = sum(
        len(topic.partitions) * (len(request.group_id) + len(name) + _LEAST_RECORD_BYTES)
        + sum(_metadata_length(partition, settings) for partition in topic.partitions)
        for topic, name in zip(request.topics, names, strict=True)
        if name is not None
    )
    if size > settings.max_batch_bytes and not settings.compresses:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a commit of group {request.group_id} needs more than max.message.bytes of the "
            f"offsets topic, {settings.max_batch_bytes}",
        )


def _metadata_length(partition: Partition, settings: GroupSettings) -> int:
    """Return 0 for metadata that is refused."""
    length = len(partition.committed_metadata or "")
    return length if length <= settings.offset_metadata_max_bytes else 0


def _topic_name(step: GroupStep, topic: Topic, version: int) -> str | None:
    """Return None if the topic does not exist."""
    if version >= _TOPIC_ID_VERSION:
        return step.groups.image.topic_names.get(topic.topic_id)
    return topic.name if topic.name in step.groups.image.topics else None


def _group_error(
    step: GroupStep, request: OffsetCommitRequest, names: list[str | None], caller: Caller
) -> ErrorCode:
    """Return NONE if the sender may commit. A commit extends the session of a classic member."""
    group = step.groups.by_id.get(request.group_id)
    epoch = request.generation_id_or_member_epoch
    if group is None:
        if epoch < 0:
            return ErrorCode.NONE
        return (
            ErrorCode.GROUP_ID_NOT_FOUND
            if caller.version >= _GROUP_NOT_FOUND_VERSION
            else ErrorCode.ILLEGAL_GENERATION
        )
    try:
        group.check_commit(request.member_id, request.group_instance_id, epoch, caller.version)
    except KafkaError as error:
        has_owned = error.code is ErrorCode.STALE_MEMBER_EPOCH and _has_owned_all(
            step, group, request, names
        )
        return ErrorCode.NONE if has_owned else error.code
    if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.PREPARING):
        extend_session(step, group, group.members[request.member_id])
    return ErrorCode.NONE


def _has_owned_all(
    step: GroupStep, group: Group, request: OffsetCommitRequest, names: list[str | None]
) -> bool:
    """KIP-1251: a member that does not know its new epoch yet may commit partitions that it has
    owned since the epoch that it knows."""
    member = group.members.get(request.member_id) if isinstance(group, ConsumerGroup) else None
    epoch = request.generation_id_or_member_epoch
    if member is None or not 0 <= epoch < member.epoch:
        return False
    for topic, name in zip(request.topics, names, strict=True):
        if name is not None:
            topic_id = step.groups.image.topics[name].id
            since = {**member.revoking.get(topic_id, {}), **member.assigned.get(topic_id, {})}
            if not all(
                epoch >= since.get(partition.partition_index, member.epoch)
                for partition in topic.partitions
            ):
                return False
    return True


def _commit_partition(
    step: GroupStep, request: OffsetCommitRequest, topic: Topic, name: str, partition: Partition
) -> ErrorCode:
    metadata = partition.committed_metadata or ""
    if len(metadata) > step.groups.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    retention_ms = request.retention_time_ms
    committed = Committed(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=step.wall_ms,
        expire_timestamp_ms=NO_TIMESTAMP if retention_ms == -1 else step.wall_ms + retention_ms,
        topic_id=topic.topic_id,
    )
    key = OffsetCommitKey(group=request.group_id, topic=name, partition=partition.partition_index)
    step.write(key, committed.value())
    return ErrorCode.NONE


def _result(topic: Topic, codes: list[ErrorCode]) -> OffsetCommitResponse.Topic:
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
