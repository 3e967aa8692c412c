"""DeleteGroups: deletes groups without members, with their offsets.

Behaviour
  Every group has its own result: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if it does
  not exist. A group with very many offsets is deleted in several steps; if the coordinator moves in
  between, the client gets NOT_COORDINATOR and a retry deletes the rest.

Version notes
  v2 is flexible; nothing else changes.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, then
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: DeleteGroupsRequest, _context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    deleted = all_of(
        parts.groups.delete_group(group_id) for group_id in dict.fromkeys(request.groups_names)
    )
    return then(deleted, lambda results: DeleteGroupsResponse(results=tuple(results)))
