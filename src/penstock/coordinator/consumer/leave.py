"""Members go from a consumer group: they say so, or they are not heard of. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.coordinator.consumer.checks import existing_member
from penstock.coordinator.consumer.deadlines import REVOKE
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import LEAVING_FOR_A_WHILE, ConsumerMember
from penstock.coordinator.consumer.migration import downgrade, may_downgrade
from penstock.coordinator.consumer.subscription import bump, hash_of_metadata, resolve_regexes
from penstock.coordinator.consumer.write import remove_member, tell_if_settled, write_current
from penstock.coordinator.runtime.turn import Turn
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def leave(
    turn: Turn, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    member = existing_member(group, request.member_id, request.instance_id)
    if request.member_epoch == LEAVING_FOR_A_WHILE:
        _leave_for_a_while(turn, group, member)
    else:
        remove_members(turn, group, [member], f"{member.id} left")
    return ConsumerGroupHeartbeatResponse(
        member_id=member.id, member_epoch=request.member_epoch, assignment=None
    )


def _leave_for_a_while(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A static member keeps what it has until it is back, or its session ends."""
    assigned = {
        topic: dict.fromkeys(partitions, 0) for topic, partitions in member.assigned.items()
    }
    write_current(
        turn, group.id, replace(member, epoch=LEAVING_FOR_A_WHILE, assigned=assigned, revoking={})
    )
    turn.groups.consumer_deadlines.cancel((REVOKE, group.id, member.id))


def remove_members(
    turn: Turn, group: ConsumerGroup, gone: Sequence[ConsumerMember], reason: str
) -> None:
    """The others learn of it with their next heartbeats. Where only classic members are left, it
    becomes a classic group."""
    if may_downgrade(turn.groups, group, gone):
        downgrade(turn, group, gone, reason)
        return
    for member in gone:
        remove_member(turn, group.id, member.id)
    resolve_regexes(turn, group)
    bump(turn, group, reason, hash_of_metadata(turn.groups.image, group.subscribed_topics()))
    if group.is_empty:
        group.seen_topics = None
    tell_if_settled(turn, group)
