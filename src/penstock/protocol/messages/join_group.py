"""JoinGroup: a member joins a classic group; the response waits until the rebalance is complete."""

from __future__ import annotations

from penstock.protocol.schema import array, blob, boolean, int16, int32, message, string, struct


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    @struct
    class Protocol:
        name: str = string("0+")
        metadata: bytes = blob("0+")

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: tuple[Protocol, ...] = array(Protocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    @struct
    class Member:
        member_id: str = string("0+")
        group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
        metadata: bytes = blob("0+")

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: tuple[Member, ...] = array(Member, "0+")
