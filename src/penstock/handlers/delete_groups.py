"""DeleteGroups: takes away groups without members, and what they committed.

Behaviour
  Every group has its own outcome: NON_EMPTY_GROUP where it has members, GROUP_ID_NOT_FOUND where it
  is not there.

Version notes
  v2 is flexible; nothing else changes.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, with_answer
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: DeleteGroupsRequest, _context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    deleted = all_of(_delete(parts, group_id) for group_id in dict.fromkeys(request.groups_names))
    return with_answer(
        deleted,
        lambda answers: DeleteGroupsResponse(
            results=tuple(result for one in answers for result in one.results)
        ),
    )


def _delete(parts: Parts, group_id: str) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    def refused(error: KafkaError) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=(DeleteGroupsResponse.Result(group_id=group_id, error_code=error.code),)
        )

    return parts.groups.ask(
        group_id,
        lambda shard, ticket, now_ms: shard.delete_groups((group_id,), ticket, now_ms),
        refused,
    )
