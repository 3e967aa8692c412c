"""A live group goes from the classic protocol to the consumer protocol, and back (KIP-848). PURE.

Up: the first member that speaks the consumer protocol brings the group over; classic members stay,
and are served by `consumer_classic`. Down: when the last one that speaks it is gone and classic
members are left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment
from penstock.coordinator.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, State
from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.classic.rebalance import keep_session as keep_classic_session
from penstock.coordinator.classic.rebalance import prepare
from penstock.coordinator.classic.responses import refuse
from penstock.coordinator.consumer.checks import check_room
from penstock.coordinator.consumer.deadlines import forget_member, keep_session
from penstock.coordinator.consumer.embedded import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import ClassicSide, ConsumerMember
from penstock.coordinator.consumer.write import (
    write_current,
    write_epoch,
    write_member,
    write_target,
    write_target_epoch,
)
from penstock.coordinator.groups.table import Groups
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError, ProtocolError


def upgrade(turn: Turn, classic: ClassicGroup) -> ConsumerGroup:
    """The same members in the same generation. Those who wait for a rebalance are told to join
    again."""
    _check_upgrade(turn.groups, classic)
    try:
        members = [
            _consumer_member(turn.groups, classic, member) for member in classic.members.values()
        ]
    except ProtocolError as error:
        raise _not_upgraded(
            classic, f"the embedded consumer protocol is malformed: {error}"
        ) from None
    for waiting in classic.members.values():
        refuse(turn, waiting, ErrorCode.REBALANCE_IN_PROGRESS)
    turn.write(*classic.tombstones())
    group = turn.groups.by_id[classic.id] = ConsumerGroup(classic.id)
    for member in members:
        write_member(turn, classic.id, member)
    write_epoch(turn, classic.id, classic.generation, metadata_hash=0)
    for member in members:
        write_target(turn, classic.id, member.id, _partitions(member))
    # No time: the next assignment need not wait.
    write_target_epoch(turn, classic.id, classic.generation, at_ms=0)
    for member in members:
        write_current(turn, classic.id, member)
    for member in members:
        keep_session(turn.groups, group, member, turn.now_ms)
    turn.tell(
        f"group {classic.id}: generation {classic.generation} of a classic group went over to the "
        "consumer protocol"
    )
    return group


def _check_upgrade(groups: Groups, classic: ClassicGroup) -> None:
    if groups.settings.consumer_migration_policy.lower() not in ("upgrade", "bidirectional"):
        raise _not_upgraded(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgraded(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > groups.settings.consumer_max_size:
        raise _not_upgraded(classic, "the group size exceeds the consumer group maximum size")
    check_room(len(classic.members), is_member=False, settings=groups.settings)


def _not_upgraded(classic: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.id} to consumer group because {why}.",
    )


def _consumer_member(
    groups: Groups, classic: ClassicGroup, member: ClassicMember
) -> ConsumerMember:
    subscription = read_subscription(member.protocols[0].metadata)
    assigned = read_assignment(member.assignment, groups.image)
    return ConsumerMember(
        member.id,
        instance_id=member.instance_id,
        rack=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned={
            topic: dict.fromkeys(partitions, classic.generation)
            for topic, partitions in assigned.items()
        },
    )


def _partitions(member: ConsumerMember) -> Assignment:
    return {topic: frozenset(epochs) for topic, epochs in member.assigned.items()}


def may_downgrade(groups: Groups, group: ConsumerGroup, gone: Collection[ConsumerMember]) -> bool:
    gone_ids = {member.id for member in gone}
    left = [member for member in group.members.values() if member.id not in gone_ids]
    return (
        bool(left)
        and all(member.classic is not None for member in left)
        and groups.settings.consumer_migration_policy.lower() in ("downgrade", "bidirectional")
        and len(left) <= groups.settings.max_size
    )


def downgrade(
    turn: Turn,
    group: ConsumerGroup,
    gone: Collection[ConsumerMember],
    reason: str,
    rebalances: bool = True,
) -> None:
    """Its members join again, unless each of them has what it is to have."""
    classic = _classic_group(turn, group, {member.id for member in gone})
    turn.write(*group.tombstones())
    for member_id in group.members:
        forget_member(turn.groups, group.id, member_id)
    turn.groups.by_id[group.id] = classic
    turn.write(classic.record())
    for member in classic.members.values():
        keep_classic_session(turn, classic, member)
    turn.tell(
        f"group {group.id}: epoch {group.epoch} of a consumer group went back to the classic "
        f"protocol: {reason}"
    )
    if rebalances:
        prepare(turn, classic, f"only classic members are left: {reason}")


def _classic_group(turn: Turn, group: ConsumerGroup, gone_ids: set[str]) -> ClassicGroup:
    classic = ClassicGroup(group.id, turn.wall_ms)
    for member in group.members.values():
        if member.id not in gone_ids and member.classic is not None:
            classic.add(
                _classic_member(turn, member, member.classic, group.targets), CONSUMER_PROTOCOL_TYPE
            )
    classic.generation = group.epoch
    classic.state = State.STABLE
    classic.protocol = classic.voted_protocol()
    classic.subscribed_topics = classic.subscriptions()
    return classic


def _classic_member(
    turn: Turn,
    member: ConsumerMember,
    side: ClassicSide,
    targets: Mapping[str, Mapping[UUID, frozenset[int]]],
) -> ClassicMember:
    return ClassicMember(
        id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=side.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=side.protocols,
        assignment=assignment_bytes(
            targets.get(member.id, {}), side.protocol.metadata, turn.groups.image
        ),
    )
