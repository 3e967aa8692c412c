"""Replaying the records of consumer groups. PURE.

The same code replays the log while loading and every record that a step writes, so that both give
the same state. Compaction may have removed records that came before others, so replay takes nothing
for granted: a tombstone of something absent does nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.coordinator.classic.group import Protocol
from penstock.coordinator.consumer.group import (
    LEAVE_EPOCH,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
)
from penstock.coordinator.runtime.step import Undo
from penstock.protocol.internal import consumer_group_records as log

if TYPE_CHECKING:
    from penstock.coordinator.groups.table import GroupTable

MemberValue = log.ConsumerGroupMemberMetadataValue
CurrentValue = log.ConsumerGroupCurrentMemberAssignmentValue
TargetValue = log.ConsumerGroupTargetAssignmentMemberValue

_STATES = {state.value: state for state in MemberState}


def replay(groups: GroupTable, key: object, value: object | None) -> None:
    """Apply one record. Records of other types of groups are skipped."""
    match key, value:
        case log.ConsumerGroupMetadataKey(), (log.ConsumerGroupMetadataValue() | None):
            _group(groups, key.group_id, value)
        case log.ConsumerGroupMemberMetadataKey(), (log.ConsumerGroupMemberMetadataValue() | None):
            _member(groups, key.group_id, key.member_id, value)
        case log.ConsumerGroupTargetAssignmentMetadataKey(), (
            log.ConsumerGroupTargetAssignmentMetadataValue() | None
        ):
            _target_epoch(groups, key.group_id, value)
        case log.ConsumerGroupTargetAssignmentMemberKey(), (
            log.ConsumerGroupTargetAssignmentMemberValue() | None
        ):
            _target(groups, key.group_id, key.member_id, value)
        case log.ConsumerGroupCurrentMemberAssignmentKey(), (
            log.ConsumerGroupCurrentMemberAssignmentValue() | None
        ):
            _current(groups, key.group_id, key.member_id, value)
        case log.ConsumerGroupRegularExpressionKey(), (
            log.ConsumerGroupRegularExpressionValue() | None
        ):
            _regex(groups, key.group_id, key.regular_expression, value)


def save(undo: Undo, groups: GroupTable, key: object, *, deletes: bool) -> None:
    """Note in `undo` what reverts the replay of a record with this key."""
    group_id: str = getattr(key, "group_id")  # noqa: B009  # a field of all these keys
    group = groups.by_id.get(group_id)
    if not isinstance(group, ConsumerGroup):
        # The record may create it, in the place of a classic group.
        undo.save(groups.by_id, group_id)
        return
    match key:
        case log.ConsumerGroupMetadataKey():
            undo.save(groups.by_id, group_id)
            undo.save(vars(group), "epoch")
            undo.save(vars(group), "metadata_hash")
        case log.ConsumerGroupTargetAssignmentMetadataKey():
            undo.save(vars(group), "target_epoch")
            undo.save(vars(group), "target_at_ms")
        case log.ConsumerGroupTargetAssignmentMemberKey():
            undo.save(group.targets, key.member_id)
        case log.ConsumerGroupRegularExpressionKey():
            undo.save(group.regexes, key.regular_expression)
        case log.ConsumerGroupMemberMetadataKey() | log.ConsumerGroupCurrentMemberAssignmentKey():
            if deletes and undo.first((group_id, "the order of the members")):
                undo.add(partial(group.reorder, list(group.members)))
            undo.add(partial(_restore, group, key.member_id, group.members.get(key.member_id)))


def _restore(group: ConsumerGroup, member_id: str, member: ConsumerMember | None) -> None:
    if member is not None:
        group.put(member)
    elif member_id in group.members:
        group.remove(member_id)


def _known(groups: GroupTable, group_id: str) -> ConsumerGroup | None:
    group = groups.by_id.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _created(groups: GroupTable, group_id: str) -> ConsumerGroup:
    """Return the group, created if needed. It replaces a classic group, which only has offsets if
    the log is still being loaded; the offsets stay."""
    group = _known(groups, group_id)
    if group is None:
        group = groups.by_id[group_id] = ConsumerGroup(group_id)
    return group


def _group(groups: GroupTable, group_id: str, value: log.ConsumerGroupMetadataValue | None) -> None:
    if value is not None:
        group = _created(groups, group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif _known(groups, group_id) is not None:
        del groups.by_id[group_id]


def _member(groups: GroupTable, group_id: str, member_id: str, value: MemberValue | None) -> None:
    if value is not None:
        group = _created(groups, group_id)
        group.put(_with_member(group.members.get(member_id, ConsumerMember(member_id)), value))
        return
    known = _known(groups, group_id)
    if known is not None and member_id in known.members:
        known.remove(member_id)


def _with_member(member: ConsumerMember, value: MemberValue) -> ConsumerMember:
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


def _target_epoch(
    groups: GroupTable, group_id: str, value: log.ConsumerGroupTargetAssignmentMetadataValue | None
) -> None:
    if value is not None:
        group = _created(groups, group_id)
        group.target_epoch, group.target_at_ms = value.assignment_epoch, value.assignment_timestamp
    elif (known := _known(groups, group_id)) is not None:
        known.target_epoch = -1


def _target(groups: GroupTable, group_id: str, member_id: str, value: TargetValue | None) -> None:
    if value is not None:
        _created(groups, group_id).targets[member_id] = {
            topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
        }
    elif (known := _known(groups, group_id)) is not None:
        known.targets.pop(member_id, None)


def _current(groups: GroupTable, group_id: str, member_id: str, value: CurrentValue | None) -> None:
    if value is not None:
        group = _created(groups, group_id)
        member = group.members.get(member_id, ConsumerMember(member_id))
        group.put(
            replace(
                member,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=_STATES.get(value.state, MemberState.UNKNOWN),
                assigned=_owned(value.assigned_partitions, value.member_epoch),
                revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
            )
        )
        return
    known = _known(groups, group_id)
    if known is not None and member_id in known.members:
        left = replace(
            known.members[member_id],
            epoch=LEAVE_EPOCH,
            previous_epoch=LEAVE_EPOCH,
            assigned={},
            revoking={},
        )
        known.put(left)


def _owned(values: tuple[CurrentValue.TopicPartitions, ...], member_epoch: int) -> Owned:
    """Before Kafka 4.3 records did not hold the epoch in which a partition was assigned."""
    return {
        value.topic_id: dict(zip(value.partitions, value.assignment_epochs, strict=True))
        if value.assignment_epochs
        else dict.fromkeys(value.partitions, member_epoch)
        for value in values
    }


def _regex(
    groups: GroupTable,
    group_id: str,
    regex: str,
    value: log.ConsumerGroupRegularExpressionValue | None,
) -> None:
    if value is not None:
        _created(groups, group_id).regexes[regex] = frozenset(value.topics)
    elif (known := _known(groups, group_id)) is not None:
        known.regexes.pop(regex, None)
