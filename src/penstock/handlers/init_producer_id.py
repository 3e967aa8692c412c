"""InitProducerId: the producer id and epoch of an idempotent or transactional producer.

Behaviour
  Without a transactional id every request gets a new producer id with epoch 0, from the block that
  the controller has allocated to this broker. With one the coordinator aborts an open transaction,
  waits for its end, and returns the producer id with the next epoch, which fences earlier
  producers. After the last epoch the producer id is a new one. INVALID_REQUEST for an id without an
  epoch, an epoch without an id, and an empty transactional id. INVALID_TRANSACTION_TIMEOUT beyond
  transaction.max.timeout.ms. CONCURRENT_TRANSACTIONS if the end of the open transaction takes
  longer than add.partitions.to.txn.retry.backoff.max.ms; Kafka always answers so, and the client
  tries again.

Version notes
  v3 lets a producer send its current id and epoch (KIP-360); without a transactional id it gets a
  new id nevertheless, as in Kafka. Before v4 a fenced producer gets INVALID_PRODUCER_EPOCH. v6
  (two-phase commit, KIP-939) is unstable in Kafka 4.3; it is served with
  transaction.two.phase.commit.enable.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.awaitables import then
from penstock.handlers.context import RequestContext
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import ProducerIds
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    producer_ids: ProducerIds
    transactions: Transactions


_FIRST_FENCED_VERSION = 4


def handle(
    parts: Parts, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (
        request.producer_epoch == NO_PRODUCER_EPOCH
    ) or request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _new_id(parts)
    response = parts.transactions.init_producer_id(request)
    return response if context.version >= _FIRST_FENCED_VERSION else then(response, _without_fenced)


async def _new_id(parts: Parts) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await parts.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        return _refused(error.code)


def _without_fenced(response: InitProducerIdResponse) -> InitProducerIdResponse:
    fenced = response.error_code == ErrorCode.PRODUCER_FENCED
    return _refused(ErrorCode.INVALID_PRODUCER_EPOCH) if fenced else response


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
