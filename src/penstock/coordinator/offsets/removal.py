"""How offsets go: OffsetDelete, DeleteGroups, deleted topics. PURE. That they expire is in
`offset_expiry`."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.coordinator.groups.group import Group
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.delete_groups import DeleteGroupsResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def delete_offsets(turn: Turn, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    group = turn.groups.by_id.get(request.group_id)
    if group is None:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    try:
        group.check_delete_offsets()
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=tuple(_delete_topic(turn, group, topic) for topic in request.topics)
    )


def _delete_topic(
    turn: Turn, group: Group, topic: OffsetDeleteRequest.Topic
) -> OffsetDeleteResponse.Topic:
    code = ErrorCode.NONE
    if topic.name not in turn.groups.image.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif group.is_subscribed_to(topic.name):
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    else:
        partitions = (
            TopicPartition(topic.name, asked.partition_index) for asked in topic.partitions
        )
        _remove(turn, group.id, partitions)
    return OffsetDeleteResponse.Topic(
        name=topic.name,
        partitions=tuple(
            OffsetDeleteResponse.Topic.Partition(
                partition_index=asked.partition_index, error_code=code
            )
            for asked in topic.partitions
        ),
    )


def _remove(turn: Turn, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        if turn.groups.offsets.get(group_id, partition) is not None:
            turn.remove_offset(group_id, partition)


def delete_groups(turn: Turn, group_ids: Iterable[str]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeleteGroupsResponse.Result(group_id=group_id, error_code=_delete_group(turn, group_id))
            for group_id in group_ids
        )
    )


def _delete_group(turn: Turn, group_id: str) -> ErrorCode:
    group = turn.groups.by_id.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
    try:
        group.check_delete()
    except KafkaError as error:
        return error.code
    _remove(turn, group_id, list(turn.groups.offsets.of_group(group_id)))
    remove_group(turn, group)
    return ErrorCode.NONE


def remove_group(turn: Turn, group: Group) -> None:
    """An empty one, without offsets."""
    turn.write(*group.tombstones())
    del turn.groups.by_id[group.id]


def topics_deleted(turn: Turn, before: MetadataImage) -> None:
    """Offsets of topics that were there before and are not any more; one that was made again is
    another."""
    after = turn.groups.image
    if after.topics is before.topics:
        return
    gone = {name for name, topic in before.topics.items() if topic.id not in after.topic_names}
    if gone:
        for group_id, partition in [key for key in turn.groups.offsets if key[1].topic in gone]:
            turn.remove_offset(group_id, partition)
