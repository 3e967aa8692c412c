"""Changes of consumer groups, each a record that is replayed at once. PURE."""

from __future__ import annotations

from penstock.coordinator.assignors.spec import Assignment
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import ConsumerMember
from penstock.coordinator.consumer.records import current_value, member_value, target_value
from penstock.coordinator.consumer.replay import replay
from penstock.coordinator.groups.records import record, tombstone
from penstock.coordinator.runtime.turn import Turn
from penstock.protocol.internal import consumer_group_records as log

# The line about a rebalance says no more than this many reasons.
_MOST_REASONS = 5
_AND_MORE = "and more"


def write_member(turn: Turn, group_id: str, member: ConsumerMember) -> None:
    """What it says of itself; not what it has."""
    _put(
        turn,
        log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.id),
        member_value(member),
    )


def write_current(turn: Turn, group_id: str, member: ConsumerMember) -> None:
    _put(
        turn,
        log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id),
        current_value(member),
    )


def write_target(turn: Turn, group_id: str, member_id: str, target: Assignment) -> None:
    _put(
        turn,
        log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        target_value(target),
    )


def write_target_epoch(turn: Turn, group_id: str, epoch: int, at_ms: int) -> None:
    value = log.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=at_ms
    )
    _put(turn, log.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def write_epoch(turn: Turn, group_id: str, epoch: int, metadata_hash: int) -> None:
    value = log.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    _put(turn, log.ConsumerGroupMetadataKey(group_id=group_id), value)


def write_regex(turn: Turn, group_id: str, regex: str, topics: frozenset[str]) -> None:
    key = log.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    version = turn.groups.image.offset
    _put(
        turn,
        key,
        log.ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(topics)), version=version, timestamp=turn.wall_ms
        ),
    )


def remove_regex(turn: Turn, group_id: str, regex: str) -> None:
    _put(
        turn,
        log.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        None,
    )


def remove_member(turn: Turn, group_id: str, member_id: str) -> None:
    _put(
        turn,
        log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        None,
    )
    _put(
        turn,
        log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        None,
    )
    _put(turn, log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def _put(turn: Turn, key: object, value: object | None) -> None:
    replay(turn.groups, key, value)
    turn.write(tombstone(key) if value is None else record(key, value))


def note_rebalance(turn: Turn, group: ConsumerGroup, reason: str) -> None:
    if group.rebalance_began_ms is None:
        group.rebalance_began_ms = turn.now_ms
    if len(group.rebalance_reasons) < _MOST_REASONS:
        group.rebalance_reasons.append(reason)
    elif group.rebalance_reasons[-1] != _AND_MORE:
        group.rebalance_reasons.append(_AND_MORE)


def tell_if_settled(turn: Turn, group: ConsumerGroup) -> None:
    """One line for each rebalance: it ends when all members have what they are to have, or nobody
    is left."""
    if group.rebalance_began_ms is None or not (group.is_settled or group.is_empty):
        return
    took_ms = turn.now_ms - group.rebalance_began_ms
    outcome = "is empty" if group.is_empty else f"is stable with {len(group.members)} members"
    turn.tell(
        f"group {group.id}: epoch {group.epoch} {outcome} after {took_ms} ms: "
        f"{'; '.join(group.rebalance_reasons)}"
    )
    group.rebalance_began_ms = None
    group.rebalance_reasons = []
