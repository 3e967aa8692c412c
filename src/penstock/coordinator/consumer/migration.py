"""The migration of a live group between the classic and the consumer protocol (KIP-848). PURE.

Upgrade: the first member that uses the consumer protocol converts the group. Members of the classic
protocol stay, and `consumer/classic_members.py` serves them. Downgrade: the last member that uses
the consumer protocol has left, and members of the classic protocol remain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment
from penstock.coordinator.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicMember,
    voted_protocol,
)
from penstock.coordinator.classic.rebalance import extend_session as extend_classic_session
from penstock.coordinator.classic.rebalance import prepare
from penstock.coordinator.classic.records import stable_value
from penstock.coordinator.classic.responses import refuse_parked
from penstock.coordinator.consumer.checks import check_room
from penstock.coordinator.consumer.embedded import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from penstock.coordinator.consumer.group import ClassicSide, ConsumerGroup, ConsumerMember
from penstock.coordinator.consumer.records import (
    write_current,
    write_epoch,
    write_member,
    write_target,
    write_target_epoch,
)
from penstock.coordinator.consumer.timeouts import cancel_deadlines, extend_session
from penstock.coordinator.groups.step import GroupStep, record
from penstock.coordinator.groups.table import GroupTable
from penstock.coordinator.runtime.step import batch_bytes
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.protocol.internal.classic_group_records import GroupMetadataKey


def upgrade(step: GroupStep, classic: ClassicGroup) -> ConsumerGroup:
    """Convert a classic group: the same members in the same generation. Members that wait for a
    rebalance must rejoin."""
    _check_upgrade(step.groups, classic)
    try:
        members = [
            _consumer_member(step.groups, classic, member) for member in classic.members.values()
        ]
    except ProtocolError as error:
        raise _not_upgraded(
            classic, f"the embedded consumer protocol is malformed: {error}"
        ) from None
    for waiting in classic.members.values():
        refuse_parked(step, waiting, ErrorCode.REBALANCE_IN_PROGRESS)
    step.delete(*classic.tombstone_keys())
    for member in members:
        write_member(step, classic.id, member)
    write_epoch(step, classic.id, classic.generation, metadata_hash=0)
    for member in members:
        write_target(step, classic.id, member.id, _partitions(member))
    # Time 0: the next assignment need not wait for the interval.
    write_target_epoch(step, classic.id, classic.generation, at_ms=0)
    for member in members:
        write_current(step, classic.id, member)
    group = step.groups.by_id[classic.id]
    assert isinstance(group, ConsumerGroup)
    for member in members:
        extend_session(step, group, member)
    step.log(
        f"group {classic.id}: generation {classic.generation} was upgraded from the classic to the "
        "consumer protocol"
    )
    return group


def _check_upgrade(groups: GroupTable, classic: ClassicGroup) -> None:
    if groups.settings.consumer_migration_policy.lower() not in ("upgrade", "bidirectional"):
        raise _not_upgraded(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgraded(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > groups.settings.consumer_max_size:
        raise _not_upgraded(classic, "the group size exceeds the consumer group maximum size")
    check_room(len(classic.members), is_member=False, settings=groups.settings)


def _not_upgraded(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.id} to consumer group because {reason}.",
    )


def _consumer_member(
    groups: GroupTable, classic: ClassicGroup, member: ClassicMember
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


def may_downgrade(
    groups: GroupTable, group: ConsumerGroup, leaving: Collection[ConsumerMember]
) -> bool:
    remaining = len(group.members) - len(leaving)
    classic = group.classic_count - sum(member.classic is not None for member in leaving)
    return (
        0 < remaining == classic <= groups.settings.max_size
        and groups.settings.consumer_migration_policy.lower() in ("downgrade", "bidirectional")
    )


def downgrade(
    step: GroupStep,
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    reason: str,
    rebalances: bool = True,
) -> bool:
    """Convert the group to a classic one. Its members rejoin, unless each of them owns its target.
    Return False, and change nothing, if the records do not fit into this step: classic members may
    stay in a consumer group."""
    draft = _classic_group(step, group, {member.id for member in leaving})
    value = stable_value(draft, draft.members.values(), step.wall_ms)
    tombstones = [record(key, None) for key in group.tombstone_keys()]
    written = record(GroupMetadataKey(group=group.id), value)
    if not step.has_room(batch_bytes([*tombstones, written])):
        return False
    for member_id in group.members:
        cancel_deadlines(step, group.id, member_id)
    step.delete(*group.tombstone_keys())
    step.write(GroupMetadataKey(group=group.id), value)
    classic = step.groups.by_id[group.id]
    assert isinstance(classic, ClassicGroup)
    for member in draft.members.values():
        # The log has only the chosen protocol.
        classic.put(replace(classic.members[member.id], protocols=member.protocols))
        extend_classic_session(step, classic, member)
    step.log(
        f"group {group.id}: epoch {group.epoch} was downgraded from the consumer to the classic "
        f"protocol: {reason}"
    )
    if rebalances:
        prepare(step, classic, f"only members of the classic protocol remain: {reason}")
    return True


def _classic_group(step: GroupStep, group: ConsumerGroup, leaving_ids: set[str]) -> ClassicGroup:
    """Return the classic group to be written; it is not in the table."""
    classic = ClassicGroup(group.id)
    for member in group.members.values():
        if member.id not in leaving_ids and member.classic is not None:
            classic.add(
                _classic_member(step, member, member.classic, group.targets), CONSUMER_PROTOCOL_TYPE
            )
    classic.generation = group.epoch
    classic.protocol = voted_protocol(classic.members.values())
    return classic


def _classic_member(
    step: GroupStep,
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
            targets.get(member.id, {}), side.protocol.metadata, step.groups.image
        ),
    )
