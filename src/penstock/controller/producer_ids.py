"""AllocateProducerIds: assigns a broker a block of producer ids that no other broker gets. PURE."""

from __future__ import annotations

from penstock.controller.brokers.registration import check_broker_epoch
from penstock.controller.decision import ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.metadata_nodes import ProducerIdsRecord
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK_SIZE = 1_000
_LAST_ID = 2**63 - 1


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    first = image.next_producer_id
    try:
        check_broker_epoch(image, request.broker_id, request.broker_epoch)
        if first > _LAST_ID - BLOCK_SIZE:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Exhausted all producerIds: the next block would end above the largest int64.",
            )
    except KafkaError as error:
        return ControllerResult((), AllocateProducerIdsResponse(error_code=error.code))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + BLOCK_SIZE,
    )
    return ControllerResult(
        (record,), AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    )
