"""DescribeGroups: classic groups and their members.

Behaviour
  Every group has its own result. Member metadata and assignments are shown while the group is
  stable.

Version notes
  v4 adds instance ids. v6 answers GROUP_ID_NOT_FOUND, with a message, for a group that does not
  exist; before, the group is described as Dead.

Not implemented
  Authorized operations: always unknown (-2147483648).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, then
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    described = all_of(
        parts.groups.describe_group(group_id, context.version) for group_id in request.groups
    )
    return then(described, lambda groups: DescribeGroupsResponse(groups=tuple(groups)))
