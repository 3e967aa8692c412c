"""Records of consumer groups become state. PURE.

Used for the log at start and for every record that is written, so that both give the same.
Compaction may have taken records away that came before others, so nothing is taken for granted: a
tombstone of what is not there means nothing.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.coordinator.consumer.deadlines import forget_member
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import LEAVING, ConsumerMember
from penstock.coordinator.consumer.records import target_of, with_current_value, with_member_value
from penstock.coordinator.groups.table import Groups
from penstock.protocol.internal import consumer_group_records as log


def replay(groups: Groups, key: object, value: object | None) -> None:
    """Records of other kinds of groups are passed over."""
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


def consumer_group(groups: Groups, group_id: str) -> ConsumerGroup | None:
    group = groups.by_id.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _created(groups: Groups, group_id: str) -> ConsumerGroup:
    """A classic group that only has offsets, as far as the log was read, turns out to be a consumer
    group; its offsets stay."""
    group = consumer_group(groups, group_id)
    if group is None:
        group = groups.by_id[group_id] = ConsumerGroup(group_id)
    return group


def _group(groups: Groups, group_id: str, value: log.ConsumerGroupMetadataValue | None) -> None:
    if value is not None:
        group = _created(groups, group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif consumer_group(groups, group_id) is not None:
        del groups.by_id[group_id]


def _member(
    groups: Groups,
    group_id: str,
    member_id: str,
    value: log.ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is not None:
        group = _created(groups, group_id)
        group.put(with_member_value(group.members.get(member_id, ConsumerMember(member_id)), value))
        return
    forget_member(groups, group_id, member_id)
    known = consumer_group(groups, group_id)
    if known is not None and member_id in known.members:
        known.remove(member_id)


def _target_epoch(
    groups: Groups, group_id: str, value: log.ConsumerGroupTargetAssignmentMetadataValue | None
) -> None:
    if value is not None:
        group = _created(groups, group_id)
        group.target_epoch, group.target_at_ms = value.assignment_epoch, value.assignment_timestamp
    elif (known := consumer_group(groups, group_id)) is not None:
        known.target_epoch = -1


def _target(
    groups: Groups,
    group_id: str,
    member_id: str,
    value: log.ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is not None:
        _created(groups, group_id).targets[member_id] = target_of(value)
    elif (known := consumer_group(groups, group_id)) is not None:
        known.targets.pop(member_id, None)


def _current(
    groups: Groups,
    group_id: str,
    member_id: str,
    value: log.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is not None:
        group = _created(groups, group_id)
        group.put(
            with_current_value(group.members.get(member_id, ConsumerMember(member_id)), value)
        )
        return
    known = consumer_group(groups, group_id)
    if known is not None and member_id in known.members:
        gone = replace(
            known.members[member_id],
            epoch=LEAVING,
            previous_epoch=LEAVING,
            assigned={},
            revoking={},
        )
        known.put(gone)


def _regex(
    groups: Groups, group_id: str, regex: str, value: log.ConsumerGroupRegularExpressionValue | None
) -> None:
    if value is not None:
        _created(groups, group_id).regexes[regex] = frozenset(value.topics)
    elif (known := consumer_group(groups, group_id)) is not None:
        known.regexes.pop(regex, None)
