"""TxnOffsetCommit: a producer commits the offsets of a group as part of its transaction.

Behaviour
  The broker asks the transaction coordinator first whether the group's partition of
  __consumer_offsets is in the producer's transaction; its error is the result of all partitions.
  Then every partition has its own result. The offsets are pending until the transaction ends:
  OffsetFetch with require_stable waits for that. The response leaves when they are in the log.
  Names of the producer's consumer are checked if it gives any (KIP-447): UNKNOWN_MEMBER_ID,
  FENCED_INSTANCE_ID, and ILLEGAL_GENERATION for another generation or member epoch. Unlike
  OffsetCommit, a group in a rebalance takes them. All offsets of a request are written atomically:
  if their batch exceeds max.message.bytes, none is written (UNKNOWN_SERVER_ERROR).
  UNKNOWN_TOPIC_OR_PARTITION for a partition that does not exist, OFFSET_METADATA_TOO_LARGE beyond
  offset.metadata.max.bytes, INVALID_PRODUCER_EPOCH for a producer that was fenced.

Version notes
  v2 adds the leader epoch, v3 the consumer's member id, generation and instance id. v4 may return
  TRANSACTION_ABORTABLE; earlier versions get INVALID_TXN_STATE. From v5 on (KIP-890) the broker
  adds the partition to the transaction: the producer does not send AddOffsetsToTxn.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable, Container
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.groups.errors import txn_offset_commit_topic
from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, split_missing, then
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from penstock.protocol.schema import changed

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    image = parts.metadata.image

    def known(topic: TxnOffsetCommitRequest.Topic) -> Container[int]:
        found = image.topics.get(topic.name)
        return () if found is None else found.partitions

    existing, missing = split_missing(request.topics, known)
    errors = tuple(
        txn_offset_commit_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in missing
    )
    if not existing:
        return TxnOffsetCommitResponse(topics=errors)
    return then(
        parts.groups.txn_offset_commit(
            changed(request, topics=existing) if errors else request, caller_of(context)
        ),
        lambda response: (
            TxnOffsetCommitResponse(topics=response.topics + errors) if errors else response
        ),
    )
