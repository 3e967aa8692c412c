"""ListGroups: the groups that this broker coordinates.

Behaviour
  COORDINATOR_LOAD_IN_PROGRESS, and no groups, while any of them are being loaded. Filters do not
  care about case.

Version notes
  v4 brings the state, and a filter by it, v5 the type (classic, consumer), and one by that.

Not implemented
  Share and streams groups.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, with_answer
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from penstock.coordinator.groups.shard import Shard
    from penstock.node.shards.groups import Groups

Listed = list[ListGroupsResponse.Group] | KafkaError


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: ListGroupsRequest, _context: RequestContext
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    def look(shard: Shard) -> Listed:
        return shard.list_groups(request.states_filter, request.types_filter)

    listed: list[Listed] | Awaitable[list[Listed]] = all_of(
        parts.groups.read_all(look, lambda error: error)
    )
    return with_answer(listed, _response)


def _response(listed: list[Listed]) -> ListGroupsResponse:
    for one in listed:
        if isinstance(one, KafkaError):
            return ListGroupsResponse(error_code=one.code)
    return ListGroupsResponse(
        groups=tuple(group for one in listed if not isinstance(one, KafkaError) for group in one)
    )
