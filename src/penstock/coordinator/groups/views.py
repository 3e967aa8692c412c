"""ListGroups, DescribeGroups and ConsumerGroupDescribe. PURE; changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.consumer.group import ConsumerGroup, ConsumerMember
from penstock.coordinator.groups.table import GroupTable
from penstock.errors import ErrorCode
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.protocol.messages.describe_groups import DescribeGroupsResponse
from penstock.protocol.messages.list_groups import ListGroupsResponse

# Before this version a group that does not exist is described as dead, without an error.
_GROUP_NOT_FOUND_VERSION = 6

ClassicDescription = DescribeGroupsResponse.Group
ConsumerDescription = ConsumerGroupDescribeResponse.Group
Assignment = ConsumerDescription.Member.Assignment

_MEMBER_TYPE_CLASSIC, _MEMBER_TYPE_CONSUMER = 0, 1


def list_groups(
    groups: GroupTable, states: Collection[str], types: Collection[str]
) -> list[ListGroupsResponse.Group]:
    """Return the groups that pass both filters. An empty filter passes all; case does not
    matter."""
    accepted_states = {state.lower() for state in states}
    accepted_types = {type_.lower() for type_ in types}
    return [
        ListGroupsResponse.Group(
            group_id=group.id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name,
            group_type=group.kind,
        )
        for group in groups.by_id.values()
        if (not accepted_states or group.state_name.lower() in accepted_states)
        and (not accepted_types or group.kind in accepted_types)
    ]


def describe_classic(groups: GroupTable, group_id: str, version: int) -> ClassicDescription:
    group = groups.by_id.get(group_id)
    if not isinstance(group, ClassicGroup):
        if version < _GROUP_NOT_FOUND_VERSION:
            return ClassicDescription(group_id=group_id, group_state="Dead")
        problem = "not found" if group is None else "is not a classic group"
        return ClassicDescription(
            group_id=group_id,
            group_state="Dead",
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {problem}.",
        )
    is_stable = group.state is State.STABLE
    return ClassicDescription(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            ClassicDescription.Member(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )


def describe_consumer(groups: GroupTable, group_id: str) -> ConsumerDescription:
    group = groups.by_id.get(group_id)
    if not isinstance(group, ConsumerGroup):
        problem = "not found" if group is None else "is not a consumer group"
        return ConsumerDescription(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {problem}.",
        )
    return ConsumerDescription(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor or groups.settings.consumer_assignors[0],
        members=tuple(
            _consumer_member(groups.image, group, member) for member in group.members.values()
        ),
    )


def _consumer_member(
    image: MetadataImage, group: ConsumerGroup, member: ConsumerMember
) -> ConsumerDescription.Member:
    return ConsumerDescription.Member(
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
        member_type=_MEMBER_TYPE_CONSUMER if member.classic is None else _MEMBER_TYPE_CLASSIC,
    )


def _assignment(
    image: MetadataImage, partitions_by_topic: Mapping[UUID, Iterable[int]]
) -> Assignment:
    """Leave out deleted topics: they have no name."""
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
