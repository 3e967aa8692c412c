"""DescribeGroups: classic groups and their members.

Behaviour
  Every group has its own outcome. What members said and are assigned is told while the group is
  stable.

Version notes
  v4 brings instance ids. v6 calls a group that is not there GROUP_ID_NOT_FOUND, with a message;
  before, it is described as Dead.

Not implemented
  Authorized operations: always unknown (-2147483648).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, with_answer
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups

Described = DescribeGroupsResponse.Group


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    described = all_of(_describe(parts, group_id, context.version) for group_id in request.groups)
    return with_answer(described, lambda groups: DescribeGroupsResponse(groups=tuple(groups)))


def _describe(parts: Parts, group_id: str, version: int) -> Described | Awaitable[Described]:
    def refused(error: KafkaError) -> Described:
        return Described(group_id=group_id, error_code=error.code)

    return parts.groups.read(
        group_id, lambda shard: shard.describe_group(group_id, version), refused
    )
