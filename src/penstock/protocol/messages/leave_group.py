"""LeaveGroup: members leave a classic group without waiting for their session timeout."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, message, string, struct


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    @struct
    class Member:
        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: tuple[Member, ...] = array(Member, "3+")


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    @struct
    class Member:
        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+")
        error_code: int = int16("3+")

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: tuple[Member, ...] = array(Member, "3+")
