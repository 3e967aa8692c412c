"""ConsumerGroupDescribe: consumer groups and their members (KIP-848).

Behaviour
  Every group has its own outcome. GROUP_ID_NOT_FOUND for one that is not there, or is a classic
  one. With group.version 0 each is UNSUPPORTED_VERSION.

Version notes
  v1 tells which members speak the classic protocol.

Not implemented
  Authorized operations: always unknown (-2147483648).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.features import consumer_groups_refusal
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, with_answer
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups

Described = ConsumerGroupDescribeResponse.Group


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: ConsumerGroupDescribeRequest, _context: RequestContext
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    described = all_of(_describe(parts, group_id) for group_id in request.group_ids)
    return with_answer(
        described, lambda groups: ConsumerGroupDescribeResponse(groups=tuple(groups))
    )


def _describe(parts: Parts, group_id: str) -> Described | Awaitable[Described]:
    def refused(error: KafkaError) -> Described:
        return Described(group_id=group_id, error_code=error.code, error_message=error.message)

    refusal = consumer_groups_refusal(parts.metadata.image)
    if refusal is not None:
        return refused(refusal)
    if not group_id:
        return refused(KafkaError(ErrorCode.INVALID_GROUP_ID, "a group must have an id"))
    return parts.groups.read(
        group_id, lambda shard: shard.describe_consumer_group(group_id), refused
    )
