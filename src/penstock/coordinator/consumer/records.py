"""Members and assignments of consumer groups as `__consumer_offsets` keeps them, and back. PURE.

Lists are in a fixed order, so that the same state always makes the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment
from penstock.coordinator.classic.member import Protocol
from penstock.coordinator.consumer.member import ClassicSide, ConsumerMember, MemberState, Owned
from penstock.coordinator.groups.records import tombstone
from penstock.coordinator.runtime.step import Record
from penstock.protocol.internal import consumer_group_records as log

# Shorter names for what this file is full of.
MemberValue = log.ConsumerGroupMemberMetadataValue
CurrentValue = log.ConsumerGroupCurrentMemberAssignmentValue
TargetValue = log.ConsumerGroupTargetAssignmentMemberValue

_STATES = {state.value: state for state in MemberState}


def member_value(member: ConsumerMember) -> MemberValue:
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


def with_member_value(member: ConsumerMember, value: MemberValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    protocols = (
        ()
        if classic is None
        else tuple(
            Protocol(protocol.name, protocol.metadata) for protocol in classic.supported_protocols
        )
    )
    return replace(
        member,
        instance_id=value.instance_id,
        rack=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None if classic is None else ClassicSide(classic.session_timeout_ms, protocols),
    )


def current_value(member: ConsumerMember) -> CurrentValue:
    return CurrentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_owned_value(member.assigned),
        partitions_pending_revocation=_owned_value(member.revoking),
    )


def with_current_value(member: ConsumerMember, value: CurrentValue) -> ConsumerMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
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


def _owned(values: tuple[CurrentValue.TopicPartitions, ...], member_epoch: int) -> Owned:
    """Before Kafka 4.3 records did not say in which epoch a partition was assigned."""
    return {
        value.topic_id: dict(zip(value.partitions, value.assignment_epochs, strict=True))
        if value.assignment_epochs
        else dict.fromkeys(value.partitions, member_epoch)
        for value in values
    }


def target_value(assignment: Assignment) -> TargetValue:
    return TargetValue(
        topic_partitions=tuple(
            TargetValue.TopicPartition(topic_id=topic, partitions=tuple(sorted(partitions)))
            for topic, partitions in sorted(assignment.items(), key=_topic_order)
        )
    )


def target_of(value: TargetValue) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _topic_order(item: tuple[UUID, object]) -> int:
    return item[0].int


def group_tombstones(
    group_id: str, member_ids: tuple[str, ...], regexes: tuple[str, ...]
) -> tuple[Record, ...]:
    """In Kafka's order: what a group consists of goes before it."""
    return (
        *(
            tombstone(
                log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            )
            for member_id in member_ids
        ),
        *(
            tombstone(
                log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            )
            for member_id in member_ids
        ),
        tombstone(log.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)),
        *(
            tombstone(log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))
            for member_id in member_ids
        ),
        *(
            tombstone(
                log.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
            )
            for regex in regexes
        ),
        tombstone(log.ConsumerGroupPartitionMetadataKey(group_id=group_id)),
        tombstone(log.ConsumerGroupMetadataKey(group_id=group_id)),
    )
