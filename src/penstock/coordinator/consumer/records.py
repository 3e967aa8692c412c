"""Records of consumer groups: their keys, and writing them. PURE.

Lists are in a fixed order, so that the same state always makes the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment
from penstock.protocol.internal import consumer_group_records as log

if TYPE_CHECKING:
    from penstock.coordinator.consumer.group import ClassicSide, ConsumerMember, Owned
    from penstock.coordinator.groups.step import GroupStep

MemberValue = log.ConsumerGroupMemberMetadataValue
CurrentValue = log.ConsumerGroupCurrentMemberAssignmentValue
TargetValue = log.ConsumerGroupTargetAssignmentMemberValue

# What a record takes at most besides the names in it and its partitions, and what a topic takes.
_RECORD_BYTES = 80
_TOPIC_BYTES = 28


def write_member(step: GroupStep, group_id: str, member: ConsumerMember) -> None:
    """Write what the member says of itself: its subscription and its client."""
    step.write(
        log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.id),
        _member_value(member),
    )


def write_current(step: GroupStep, group_id: str, member: ConsumerMember) -> None:
    """Write the member's epoch, state and partitions."""
    value = CurrentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_owned_value(member.assigned),
        partitions_pending_revocation=_owned_value(member.revoking),
    )
    step.write(
        log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id), value
    )


def write_target(step: GroupStep, group_id: str, member_id: str, target: Assignment) -> None:
    value = TargetValue(
        topic_partitions=tuple(
            TargetValue.TopicPartition(topic_id=topic, partitions=tuple(sorted(partitions)))
            for topic, partitions in sorted(target.items(), key=_topic_order)
        )
    )
    step.write(
        log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value
    )


def target_bytes(group_id: str, member_id: str, target: Assignment) -> int:
    """Return an upper bound of what a target assignment takes in a batch."""
    return (
        _RECORD_BYTES
        + len(group_id.encode())
        + len(member_id.encode())
        + sum(_TOPIC_BYTES + 4 * len(partitions) for partitions in target.values())
    )


def current_bytes(group_id: str, member: ConsumerMember) -> int:
    """The same of a member's epoch, state and partitions."""
    return (
        _RECORD_BYTES
        + len(group_id.encode())
        + len(member.id.encode())
        + sum(
            _TOPIC_BYTES + 8 * len(partitions)
            for owned in (member.assigned, member.revoking)
            for partitions in owned.values()
        )
    )


def write_target_epoch(step: GroupStep, group_id: str, epoch: int, at_ms: int) -> None:
    value = log.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=at_ms
    )
    step.write(log.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def write_epoch(step: GroupStep, group_id: str, epoch: int, metadata_hash: int) -> None:
    value = log.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    step.write(log.ConsumerGroupMetadataKey(group_id=group_id), value)


def write_regex(step: GroupStep, group_id: str, regex: str, topics: frozenset[str]) -> None:
    value = log.ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(topics)), version=step.groups.image.offset, timestamp=step.wall_ms
    )
    step.write(_regex_key(group_id, regex), value)


def regex_bytes(group_id: str, regex: str, topics: frozenset[str]) -> int:
    """The same of an expression with the topics that it matches, whose names are ASCII."""
    names = sum(map(len, topics)) + 3 * len(topics)
    return _RECORD_BYTES + len(group_id.encode()) + len(regex.encode()) + names


def delete_regex(step: GroupStep, group_id: str, regex: str) -> None:
    step.delete(_regex_key(group_id, regex))


def delete_member(step: GroupStep, group_id: str, member_id: str) -> None:
    step.delete(
        log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )


def group_keys(
    group_id: str, member_ids: tuple[str, ...], regexes: tuple[str, ...]
) -> tuple[object, ...]:
    """Return the keys of all of a group's records, in the order of Kafka's tombstones: the parts of
    a group before the group."""
    return (
        *(
            log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            for member_id in member_ids
        ),
        *(
            log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            for member_id in member_ids
        ),
        log.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        *(
            log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            for member_id in member_ids
        ),
        *(_regex_key(group_id, regex) for regex in regexes),
        log.ConsumerGroupPartitionMetadataKey(group_id=group_id),
        log.ConsumerGroupMetadataKey(group_id=group_id),
    )


def _regex_key(group_id: str, regex: str) -> log.ConsumerGroupRegularExpressionKey:
    return log.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)


def _member_value(member: ConsumerMember) -> MemberValue:
    return MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None if member.classic is None else _classic_value(member.classic),
    )


def _classic_value(classic: ClassicSide) -> MemberValue.ClassicMemberMetadata:
    return MemberValue.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=tuple(
            MemberValue.ClassicMemberMetadata.SupportedProtocol(name=name, metadata=metadata)
            for name, metadata in classic.protocols
        ),
    )


def _owned_value(owned: Owned) -> tuple[CurrentValue.TopicPartitions, ...]:
    return tuple(
        CurrentValue.TopicPartitions(
            topic_id=topic,
            partitions=tuple(sorted(partitions)),
            assignment_epochs=tuple(partitions[partition] for partition in sorted(partitions)),
        )
        for topic, partitions in sorted(owned.items(), key=_topic_order)
    )


def _topic_order(item: tuple[UUID, object]) -> int:
    return item[0].int
