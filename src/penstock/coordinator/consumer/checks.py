"""Validation of ConsumerGroupHeartbeat: the request itself, and the member that sends it. PURE.

Messages are Kafka's, word for word where users of clients may search for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.coordinator.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from penstock.coordinator.consumer.regex import check_cost
from penstock.coordinator.groups.table import GroupSettings, GroupTable
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

# From this version on clients make their member ids themselves.
_CLIENT_SUPPLIED_ID_VERSION = 1


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, groups: GroupTable) -> None:
    settings = groups.settings
    if (
        version >= _CLIENT_SUPPLIED_ID_VERSION
        or request.member_epoch > 0
        or request.member_epoch == LEAVE_EPOCH
    ):
        _require(request.member_id.strip() != "", "MemberId can't be empty.")
    _require(request.group_id.strip() != "", "GroupId can't be empty.")
    _require(
        request.instance_id is None or request.instance_id.strip() != "",
        "InstanceId can't be empty.",
    )
    _require(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if (
        request.server_assignor is not None
        and request.server_assignor not in settings.consumer_assignors
    ):
        supported = ", ".join(settings.consumer_assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{supported}.",
        )
    if request.subscribed_topic_regex:
        check_cost(request.subscribed_topic_regex, groups.image.topics)


def check_size(request: ConsumerGroupHeartbeatRequest, settings: GroupSettings) -> None:
    """Refuse a subscription that no record can hold before anything is made of it."""
    size = sum(map(len, request.subscribed_topic_names or ()))
    if size > settings.max_batch_bytes and not settings.compresses:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the subscription of a member of group {request.group_id} takes more than "
            f"max.message.bytes of the offsets topic, {settings.max_batch_bytes}",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(
        request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request."
    )
    _require(request.topic_partitions == (), "TopicPartitions must be empty when (re-)joining.")
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    _require(
        subscribes,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_room(members: int, is_member: bool, settings: GroupSettings) -> None:
    if members >= settings.consumer_max_size and not is_member:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            "The consumer group has reached its maximum capacity of "
            f"{settings.consumer_max_size} members.",
        )


def check_epoch(
    member: ConsumerMember, epoch: int, owned: Mapping[UUID, frozenset[int]] | None
) -> None:
    """Accept the member's epoch. Accept its previous epoch if it owns only what it is assigned: the
    response with the new epoch may have been lost."""
    if member.state is MemberState.UNKNOWN and owned != {}:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in an unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )
    if epoch in (JOIN_EPOCH, member.epoch) or (
        epoch == member.previous_epoch < member.epoch and member.has_only(owned)
    ):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def check_released(member: ConsumerMember, joining_id: str) -> None:
    """Refuse to replace a static member that has not left."""
    if member.epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {joining_id} with instance id {member.instance_id} cannot join the "
            f"group because the instance id is owned by {member.id} member.",
        )


def existing_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember:
    """Return the member. A member whose instance id another member has taken over is fenced."""
    if instance_id is None:
        return group.member(member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.id}.",
        )
    return member
