"""DescribeGroups: classic groups and their members.

Behaviour
  Every group has its own result. Member metadata and assignments are shown while the group is
  stable. Without an authorizer the authorized operations, if requested, are all that groups
  support.

Version notes
  v4 adds instance ids. v6 answers GROUP_ID_NOT_FOUND, with a message, for a group that does not
  exist; before, the group is described as Dead.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.authorized_operations import authorized_operations
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, then
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.schema import changed
from penstock.security.acls import ResourceType

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
    included = request.include_authorized_operations
    return then(
        described,
        lambda groups: DescribeGroupsResponse(
            groups=tuple(_with_operations(context, group, included) for group in groups)
        ),
    )


def _with_operations(
    context: RequestContext, group: DescribeGroupsResponse.Group, included: bool
) -> DescribeGroupsResponse.Group:
    operations = authorized_operations(
        context, ResourceType.GROUP, group.group_id, included=included and not group.error_code
    )
    return changed(group, authorized_operations=operations)
