"""Members leave a consumer group: they send a heartbeat with a leave epoch, or a deadline passes.
PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.coordinator.consumer.assignment import (
    bump_epoch,
    hash_of_metadata,
    log_if_settled,
    resolve_regexes,
)
from penstock.coordinator.consumer.checks import existing_member
from penstock.coordinator.consumer.group import (
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
)
from penstock.coordinator.consumer.migration import downgrade, may_downgrade
from penstock.coordinator.consumer.reconcile import remove_member
from penstock.coordinator.consumer.records import write_current
from penstock.coordinator.consumer.timeouts import REVOKE, TIMEOUT_REASONS, cancel_deadlines
from penstock.coordinator.groups.step import GroupStep
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def leave(
    step: GroupStep, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    member = existing_member(group, request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_STATIC_EPOCH:
        _leave_static(step, group, member)
    else:
        remove_members(step, group, [member], f"{member.id} left")
    return ConsumerGroupHeartbeatResponse(
        member_id=member.id, member_epoch=request.member_epoch, assignment=None
    )


def _leave_static(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A static member keeps its partitions until it returns, or its session times out."""
    assigned = {
        topic: dict.fromkeys(partitions, 0) for topic, partitions in member.assigned.items()
    }
    write_current(
        step, group.id, replace(member, epoch=LEAVE_STATIC_EPOCH, assigned=assigned, revoking={})
    )
    cancel_deadlines(step, group.id, member.id, (REVOKE,))


def deadline_passed(step: GroupStep, group: ConsumerGroup, kind: str, member_id: str) -> None:
    """Remove a member that missed a deadline. Deadlines of a classic group that was upgraded mean
    nothing to it."""
    member, reason = group.members.get(member_id), TIMEOUT_REASONS.get(kind)
    if member is not None and reason is not None:
        remove_members(step, group, [member], f"{member_id} was removed: {reason}")


def remove_members(
    step: GroupStep, group: ConsumerGroup, leaving: Sequence[ConsumerMember], reason: str
) -> None:
    """Remove members. The others learn of it with their next heartbeats. If only members of the
    classic protocol remain, the group becomes a classic group."""
    if may_downgrade(step.groups, group, leaving) and downgrade(step, group, leaving, reason):
        return
    for member in leaving:
        remove_member(step, group.id, member.id)
    resolve_regexes(step, group)
    bump_epoch(step, group, reason, hash_of_metadata(step.groups.image, group.subscribed_topics()))
    if group.is_empty:
        group.seen_topics = None
    log_if_settled(step, group)
