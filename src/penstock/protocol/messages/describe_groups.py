"""DescribeGroups: describes classic groups and their members, for administrators."""

from __future__ import annotations

from penstock.protocol.schema import array, blob, boolean, int16, int32, message, string, struct


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    @struct
    class Group:
        @struct
        class Member:
            member_id: str = string("0+")
            group_instance_id: str | None = string(
                "4+", nullable="4+", default=None, ignorable=True
            )
            client_id: str = string("0+")
            client_host: str = string("0+")
            member_metadata: bytes = blob("0+")
            member_assignment: bytes = blob("0+")

        error_code: int = int16("0+")
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string("0+")
        group_state: str = string("0+")
        protocol_type: str = string("0+")
        protocol_data: str = string("0+")
        members: tuple[Member, ...] = array(Member, "0+")
        authorized_operations: int = int32("3+", default=-(2**31))

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: tuple[Group, ...] = array(Group, "0+")
