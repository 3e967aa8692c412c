"""GroupMetadataValue, the last complete generation of a classic group: building and replaying it.
PURE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.coordinator.classic.group import ClassicGroup, ClassicMember, Protocol, State
from penstock.protocol.internal.classic_group_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from penstock.coordinator.groups.table import GroupTable


def stable_value(
    group: ClassicGroup,
    members: Iterable[ClassicMember],
    state_since_ms: int,
    leader_id: str | None = None,
) -> GroupMetadataValue:
    """Return the group's generation with these members and their assignments. Only the chosen
    protocol's metadata is recorded."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id if leader_id is None else leader_id,
        current_state_timestamp=state_since_ms,
        members=tuple(_member_value(member, group.protocol) for member in members),
    )


def empty_value(protocol_type: str | None, generation: int, wall_ms: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=protocol_type or "",
        generation=generation,
        protocol=None,
        leader=None,
        current_state_timestamp=wall_ms,
        members=(),
    )


def _member_value(member: ClassicMember, protocol: str | None) -> GroupMetadataValue.Member:
    return GroupMetadataValue.Member(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )


def replay_group(
    groups: GroupTable, key: GroupMetadataKey, value: GroupMetadataValue | None
) -> None:
    """Apply a group record. A tombstone leaves a consumer group of the same id alone: the classic
    group was upgraded to it."""
    known = groups.by_id.get(key.group)
    if value is not None:
        group = known if isinstance(known, ClassicGroup) else ClassicGroup(key.group)
        _load(group, value)
        groups.by_id[key.group] = group
    elif isinstance(known, ClassicGroup):
        del groups.by_id[key.group]


def _load(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Set the generation. Members that are known keep their soft state."""
    group.state = State.STABLE if value.members else State.EMPTY
    group.state_since_ms = value.current_state_timestamp
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.leader_id = value.leader
    known = group.remove_all()
    for member in value.members:
        group.put(_member(member, value.protocol, known.get(member.member_id)))
    group.subscribed_topics = group.subscriptions()


def _member(
    value: GroupMetadataValue.Member, protocol: str | None, known: ClassicMember | None
) -> ClassicMember:
    protocols: tuple[Protocol, ...] = (Protocol(protocol or "", value.subscription),)
    if known is not None and known.metadata(protocol) == value.subscription:
        protocols = known.protocols
    member = ClassicMember(
        id=value.member_id,
        instance_id=value.group_instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout,
        rebalance_timeout_ms=value.session_timeout
        if value.rebalance_timeout == -1
        else value.rebalance_timeout,
        protocols=protocols,
        assignment=value.assignment,
    )
    if known is None:
        return member
    return replace(member, is_new=known.is_new, joining=known.joining, syncing=known.syncing)
