"""AddOffsetsToTxn: adds a group's offsets to a producer's transaction.

Behaviour
  The transaction gets the group's partition of __consumer_offsets, which is created on first use.
  The errors are those of AddPartitionsToTxn.

Version notes
  Before v2 a fenced producer gets INVALID_PRODUCER_EPOCH. Clients with transaction.version 2 do not
  send it: TxnOffsetCommit v5 adds the partition.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.awaitables import then
from penstock.handlers.context import RequestContext
from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.node.shards.shard_set import positive_hash
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups
    transactions: Transactions


_FIRST_FENCED_VERSION = 2


def handle(
    parts: Parts, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if OFFSETS_TOPIC not in parts.metadata.image.topics:
        return _create_and_add(parts, request, context.version)
    return _add(parts, request, context.version)


async def _create_and_add(
    parts: Parts, request: AddOffsetsToTxnRequest, version: int
) -> AddOffsetsToTxnResponse:
    try:
        await parts.groups.find_coordinators((request.group_id,))
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    response = _add(parts, request, version)
    return response if isinstance(response, AddOffsetsToTxnResponse) else await response


def _add(
    parts: Parts, request: AddOffsetsToTxnRequest, version: int
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    topic = parts.metadata.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = positive_hash(request.group_id) % len(topic.partitions)
    return then(
        parts.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (TopicPartition(OFFSETS_TOPIC, index),),
            verify_only=False,
            transaction_version=0,
        ),
        lambda errors: _response(next(iter(errors.values())), version),
    )


def _response(code: ErrorCode, version: int) -> AddOffsetsToTxnResponse:
    if code is ErrorCode.PRODUCER_FENCED and version < _FIRST_FENCED_VERSION:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
