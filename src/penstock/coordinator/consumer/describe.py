"""ConsumerGroupDescribe. PURE, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import ConsumerMember
from penstock.coordinator.groups.table import Groups
from penstock.errors import ErrorCode
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse

Described = ConsumerGroupDescribeResponse.Group
Assignment = Described.Member.Assignment

_CLASSIC, _CONSUMER = 0, 1


def describe(groups: Groups, group_id: str) -> Described:
    group = groups.by_id.get(group_id)
    if not isinstance(group, ConsumerGroup):
        why = f"Group {group_id} {'not found' if group is None else 'is not a consumer group'}."
        return Described(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=why
        )
    return Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor or groups.settings.consumer_assignors[0],
        members=tuple(_member(groups.image, group, member) for member in group.members.values()),
    )


def _member(image: MetadataImage, group: ConsumerGroup, member: ConsumerMember) -> Described.Member:
    return Described.Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(image, member.assigned),
        target_assignment=_assignment(image, group.targets.get(member.id, {})),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(
    image: MetadataImage, partitions_by_topic: Mapping[UUID, Iterable[int]]
) -> Assignment:
    """Topics that are gone have no name, and are left out."""
    named = [
        (image.topic_names[topic], topic)
        for topic in partitions_by_topic
        if topic in image.topic_names
    ]
    return Assignment(
        topic_partitions=tuple(
            Assignment.TopicPartition(
                topic_id=topic,
                topic_name=name,
                partitions=tuple(sorted(partitions_by_topic[topic])),
            )
            for name, topic in sorted(named)
        )
    )
