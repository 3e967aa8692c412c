"""Records of offsets and classic groups become state again. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.member import ClassicMember, Protocol
from penstock.coordinator.groups.table import Groups
from penstock.coordinator.offsets.committed import committed_from
from penstock.ids import TopicPartition
from penstock.protocol.internal.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


def replay_offset(
    groups: Groups,
    key: OffsetCommitKey | LegacyOffsetCommitKey,
    value: OffsetCommitValue | LegacyOffsetCommitValue | None,
) -> None:
    """Offsets of a group that never had members make it one that only commits."""
    partition = TopicPartition(key.topic, key.partition)
    if value is None:
        groups.offsets.remove(key.group, partition)
        return
    groups.by_id.setdefault(key.group, ClassicGroup(key.group))
    groups.offsets.put(key.group, partition, committed_from(value))


def replay_group(groups: Groups, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
    if value is None:
        # A consumer group of the same name, which this one became, stays.
        if isinstance(groups.by_id.get(key.group), ClassicGroup):
            del groups.by_id[key.group]
        return
    group = ClassicGroup(key.group, value.current_state_timestamp)
    group.state = State.STABLE if value.members else State.EMPTY
    group.generation = value.generation
    for member in value.members:
        group.add(_member(member, value.protocol), value.protocol_type)
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.leader_id = value.leader
    group.subscribed_topics = group.subscriptions()
    groups.by_id[key.group] = group


def _member(value: GroupMetadataValue.Member, protocol: str | None) -> ClassicMember:
    return ClassicMember(
        id=value.member_id,
        instance_id=value.group_instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout,
        rebalance_timeout_ms=value.session_timeout
        if value.rebalance_timeout == -1
        else value.rebalance_timeout,
        protocols=(Protocol(protocol or "", value.subscription),),
        assignment=value.assignment,
    )
