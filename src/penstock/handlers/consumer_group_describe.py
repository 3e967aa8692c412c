"""ConsumerGroupDescribe: consumer groups and their members (KIP-848).

Behaviour
  Every group has its own result. GROUP_ID_NOT_FOUND for a group that does not exist or is a classic
  group. With group.version 0 UNSUPPORTED_VERSION for each. Without an authorizer the authorized
  operations, if requested, are all that groups support.

Version notes
  v1 shows which members use the classic protocol.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.features import consumer_groups_refusal
from penstock.coordinator.groups import errors
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.authorized_operations import authorized_operations
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, then
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.schema import changed
from penstock.security.acls import ResourceType

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


Group = ConsumerGroupDescribeResponse.Group


def handle(
    parts: Parts, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    described = all_of(_describe(parts, group_id) for group_id in request.group_ids)
    included = request.include_authorized_operations
    return then(
        described,
        lambda groups: ConsumerGroupDescribeResponse(
            groups=tuple(_with_operations(context, group, included) for group in groups)
        ),
    )


def _with_operations(context: RequestContext, group: Group, included: bool) -> Group:
    operations = authorized_operations(
        context, ResourceType.GROUP, group.group_id, included=included and not group.error_code
    )
    return changed(group, authorized_operations=operations)


def _describe(parts: Parts, group_id: str) -> Group | Awaitable[Group]:
    refusal = consumer_groups_refusal(parts.metadata.image)
    if refusal is None and not group_id:
        refusal = KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if refusal is not None:
        return errors.describe_consumer_group(group_id, refusal)
    return parts.groups.describe_consumer_group(group_id)
