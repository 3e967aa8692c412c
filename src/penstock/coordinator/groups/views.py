"""ListGroups and DescribeGroups. PURE, and changes nothing."""

from __future__ import annotations

from collections.abc import Collection

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.groups.table import Groups
from penstock.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribeGroupsResponse
from penstock.protocol.messages.list_groups import ListGroupsResponse

# Before, a group that is not there is described as dead, without an error.
_GROUP_NOT_FOUND_VERSION = 6

Described = DescribeGroupsResponse.Group


def list_groups(
    groups: Groups, states: Collection[str], types: Collection[str]
) -> list[ListGroupsResponse.Group]:
    """All where a filter is empty. Filters do not care about case."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {type_.lower() for type_ in types}
    return [
        ListGroupsResponse.Group(
            group_id=group.id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name,
            group_type=group.kind,
        )
        for group in groups.by_id.values()
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.kind in wanted_types)
    ]


def describe(groups: Groups, group_id: str, version: int) -> Described:
    group = groups.by_id.get(group_id)
    if not isinstance(group, ClassicGroup):
        if version < _GROUP_NOT_FOUND_VERSION:
            return Described(group_id=group_id, group_state="Dead")
        why = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
        return Described(
            group_id=group_id,
            group_state="Dead",
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=why,
        )
    is_stable = group.state is State.STABLE
    return Described(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            Described.Member(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )
