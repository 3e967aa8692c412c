"""What a ConsumerGroupHeartbeat must be like, in itself and for the member it comes from. PURE.
Messages are Kafka's, word for word where clients' users may search for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerMember,
    MemberState,
)
from penstock.coordinator.consumer.regex import affordable
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.table import Groups
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

# From here on members make their ids themselves.
_CLIENT_SUPPLIED_ID_VERSION = 1


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, groups: Groups) -> None:
    settings = groups.settings
    if (
        version >= _CLIENT_SUPPLIED_ID_VERSION
        or request.member_epoch > 0
        or request.member_epoch == LEAVING
    ):
        _demand(request.member_id.strip() != "", "MemberId can't be empty.")
    _demand(request.group_id.strip() != "", "GroupId can't be empty.")
    _demand(
        request.instance_id is None or request.instance_id.strip() != "",
        "InstanceId can't be empty.",
    )
    _demand(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    if request.member_epoch == JOINING:
        _check_joining(request)
    elif request.member_epoch == LEAVING_FOR_A_WHILE:
        _demand(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _demand(request.member_epoch >= LEAVING, "MemberEpoch is invalid.")
    if (
        request.server_assignor is not None
        and request.server_assignor not in settings.consumer_assignors
    ):
        known = ", ".join(settings.consumer_assignors)
        why = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{known}."
        )
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, why)
    if request.subscribed_topic_regex:
        affordable(request.subscribed_topic_regex, groups.image.topics)


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    _demand(
        request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request."
    )
    _demand(request.topic_partitions == (), "TopicPartitions must be empty when (re-)joining.")
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    _demand(
        subscribes,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_REQUEST, otherwise)


def check_room(members: int, is_member: bool, settings: GroupSettings) -> None:
    if members >= settings.consumer_max_size and not is_member:
        why = (
            "The consumer group has reached its maximum capacity of "
            f"{settings.consumer_max_size} members."
        )
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)


def check_epoch(
    member: ConsumerMember, epoch: int, owned: Mapping[UUID, frozenset[int]] | None
) -> None:
    """Its own; or the one before, if it has nothing but what is its own: our answer with the new
    epoch may have been lost."""
    if member.state is MemberState.UNKNOWN and owned != {}:
        why = (
            "The consumer group member is in an unknown state. The member must abandon all its "
            "partitions and rejoin."
        )
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, why)
    if epoch in (JOINING, member.epoch) or (
        epoch == member.previous_epoch < member.epoch and member.has_only(owned)
    ):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    why = (
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch})."
    )
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"{why} The member must abandon all its partitions and rejoin.",
    )


def check_released(member: ConsumerMember, joining_id: str) -> None:
    """An instance that still runs, as far as we know, is not replaced."""
    if member.epoch != LEAVING_FOR_A_WHILE:
        why = (
            f"Static member {joining_id} with instance id {member.instance_id} cannot join the "
            "group "
            f"because the instance id is owned by {member.id} member."
        )
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, why)


def existing_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember:
    """Who says that it is a member is one; an instance that another process has taken over is
    fenced."""
    if instance_id is None:
        return group.member(member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        why = (
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.id}."
        )
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, why)
    return member
