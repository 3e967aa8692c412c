"""What a consumer group's own settings say, and the node's where they say nothing (KIP-848's group
configs). PURE."""

from __future__ import annotations

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import ConsumerMember
from penstock.coordinator.groups.table import Groups
from penstock.limits import SETTLING_HEARTBEAT_MS
from penstock.metadata.image import GROUP


def session_timeout_ms(groups: Groups, group_id: str) -> int:
    settings = groups.settings
    own = _own(groups, group_id, "consumer.session.timeout.ms")
    if own is None:
        return settings.consumer_session_timeout_ms
    return max(
        settings.consumer_min_session_timeout_ms, min(own, settings.consumer_max_session_timeout_ms)
    )


def heartbeat_interval_ms(groups: Groups, group: ConsumerGroup, member: ConsumerMember) -> int:
    """Shorter for a member that is not where it is to be: each heartbeat takes it one step on."""
    settings = groups.settings
    own = _own(groups, group.id, "consumer.heartbeat.interval.ms")
    interval_ms = settings.consumer_heartbeat_interval_ms
    if own is not None:
        interval_ms = max(
            settings.consumer_min_heartbeat_interval_ms,
            min(own, settings.consumer_max_heartbeat_interval_ms),
        )
    return (
        interval_ms
        if member.is_reconciled_to(group.epoch)
        else min(interval_ms, SETTLING_HEARTBEAT_MS)
    )


def assignment_interval_ms(groups: Groups, group_id: str) -> int:
    settings = groups.settings
    own = _own(groups, group_id, "consumer.assignment.interval.ms")
    if own is None:
        return settings.consumer_assignment_interval_ms
    return max(
        settings.consumer_min_assignment_interval_ms,
        min(own, settings.consumer_max_assignment_interval_ms),
    )


def _own(groups: Groups, group_id: str, name: str) -> int | None:
    """The controller has checked that it is a number."""
    text = groups.image.configs.get((GROUP, group_id), {}).get(name)
    return None if text is None else int(text)
