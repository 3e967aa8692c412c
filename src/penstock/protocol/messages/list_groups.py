"""ListGroups: lists the groups that a broker coordinates."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, message, string, struct


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: tuple[str, ...] = array(string, "4+")
    types_filter: tuple[str, ...] = array(string, "5+")


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    @struct
    class Group:
        group_id: str = string("0+")
        protocol_type: str = string("0+")
        group_state: str = string("4+", ignorable=True)
        group_type: str = string("5+", ignorable=True)

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: tuple[Group, ...] = array(Group, "0+")
