"""InitProducerId: a producer id for an idempotent producer.

Behaviour
  Without a transactional id every request gets a new producer id with epoch 0, from the block that
  the controller has allocated to this broker. INVALID_REQUEST for an id without an epoch, an epoch
  without an id, and an empty transactional id.

Version notes
  v3 lets a producer send its current id and epoch (KIP-360); without a transactional id it gets a
  new id nevertheless, as in Kafka. v6 (two-phase commit, KIP-939) is unstable in Kafka 4.3 and not
  served.

Not implemented
  Transactions: a transactional id is NOT_COORDINATOR, as from any broker that is not its
  coordinator. The client then sends FindCoordinator, which refuses transactional ids.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import ProducerIds


class Parts(Protocol):
    producer_ids: ProducerIds


def handle(
    parts: Parts, request: InitProducerIdRequest, _context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (
        request.producer_epoch == NO_PRODUCER_EPOCH
    ) or request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.NOT_COORDINATOR)
    return _new_id(parts)


async def _new_id(parts: Parts) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await parts.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        return _refused(error.code)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
