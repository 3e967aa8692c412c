"""WriteTxnMarkers: appends the markers of transactions that were committed or aborted.

Behaviour
  Transaction coordinators send it to the leaders of a transaction's partitions, and admin clients
  to abort a hanging transaction. A marker is appended as with acks=all, and answered when it is
  committed. A marker of a stale producer epoch is INVALID_PRODUCER_EPOCH, one of a stale
  coordinator TRANSACTION_COORDINATOR_FENCED. A repeated marker is appended again and changes
  nothing. A marker for __consumer_offsets decides the pending offsets of groups.

Version notes
  v2 brings the transaction version: with version 2 a marker must have a newer producer epoch than
  the transaction that it ends (KIP-1228). v0 is not served, as in Kafka 4.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from penstock.node.shards.marker_writer import MarkerWriter


class Parts(Protocol):
    marker_writer: MarkerWriter


def handle(
    parts: Parts, request: WriteTxnMarkersRequest, _context: RequestContext
) -> Awaitable[WriteTxnMarkersResponse]:
    return parts.marker_writer.write(request)
