"""SyncGroup: the leader of a classic group hands out assignments, and every member receives its
own."""

from __future__ import annotations

from penstock.protocol.schema import array, blob, int16, int32, message, string, struct


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    @struct
    class Assignment:
        member_id: str = string("0+")
        assignment: bytes = blob("0+")

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: tuple[Assignment, ...] = array(Assignment, "0+")


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = blob("0+")
