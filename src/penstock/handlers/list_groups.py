"""ListGroups: the groups that this broker coordinates.

Behaviour
  COORDINATOR_LOAD_IN_PROGRESS, and no groups, while any of them are being loaded. Filters ignore
  case.

Version notes
  v4 adds the state and a filter by it, v5 the type (classic, consumer) and a filter by it.

Not implemented
  Share and streams groups.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: ListGroupsRequest, _context: RequestContext
) -> Awaitable[ListGroupsResponse]:
    return _list(parts, request)


async def _list(parts: Parts, request: ListGroupsRequest) -> ListGroupsResponse:
    groups: list[ListGroupsResponse.Group] = []
    for of_shard in await parts.groups.list_groups(request.states_filter, request.types_filter):
        if isinstance(of_shard, KafkaError):
            return ListGroupsResponse(error_code=of_shard.code)
        groups += of_shard
    return ListGroupsResponse(groups=tuple(groups))
