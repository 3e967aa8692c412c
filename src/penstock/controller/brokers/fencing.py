"""Fencing, unfencing, controlled shutdown and unregistration of brokers. PURE.

A fenced broker is registered, but leads no partition and is in no ISR. The records of its
partitions precede the one that fences it and follow the one that unfences it, so that no image has
a fenced leader. That holds after every record: a broker with hundreds of thousands of replicas
needs more records than fit into a batch.
"""

from __future__ import annotations

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.change_builder import PartitionChanges
from penstock.controller.partitions.leader_and_isr import (
    elect_where_leaderless,
    remove_broker_from_isrs,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.protocol.internal.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

# The values of `fenced` and `in_controlled_shutdown` in a BrokerRegistrationChangeRecord.
_FALSE, _TRUE = -1, 1


def fence_broker(
    image: MetadataImage, broker_id: int, context: ControllerContext
) -> ControllerResult[None]:
    """Remove the broker from its ISRs and leaderships. Raises KafkaError
    BROKER_ID_NOT_REGISTERED."""
    broker = _registered(image, broker_id)
    if broker.fenced:
        return ControllerResult((), None)
    changes = remove_broker_from_isrs(image, context, broker_id)
    fence = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, fenced=_TRUE
    )
    return _divisible((*changes.records, fence), changes)


def unfence_broker(
    image: MetadataImage, broker_id: int, context: ControllerContext
) -> ControllerResult[None]:
    """Let the broker lead; it is elected for leaderless partitions. Raises KafkaError
    BROKER_ID_NOT_REGISTERED."""
    broker = _registered(image, broker_id)
    if not broker.fenced:
        return ControllerResult((), None)
    changes = elect_where_leaderless(image, context, broker_id)
    unfence = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, fenced=_FALSE
    )
    return _divisible((unfence, *changes.records), changes)


def begin_controlled_shutdown(
    image: MetadataImage, broker_id: int, context: ControllerContext
) -> ControllerResult[None]:
    """Move the broker's leaderships to others; it still serves requests."""
    broker = _registered(image, broker_id)
    shutdown = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=_TRUE
    )
    changes = remove_broker_from_isrs(image, context, broker_id)
    first = () if broker.in_controlled_shutdown else (shutdown,)
    return _divisible((*first, *changes.records), changes)


def unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, context: ControllerContext
) -> ControllerResult[UnregisterBrokerResponse]:
    """Remove the broker's registration. Its replicas remain assigned to it."""
    try:
        broker = _registered(image, request.broker_id)
        changes = remove_broker_from_isrs(image, context, broker.id)
        if len(changes.records) >= MAX_RECORDS_PER_DECISION:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
            )
    except KafkaError as error:
        return ControllerResult(
            (), UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
        )
    unregister = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return ControllerResult(
        (*changes.records, unregister), UnregisterBrokerResponse(), tuple(changes.warnings)
    )


def _divisible(records: tuple[object, ...], changes: PartitionChanges) -> ControllerResult[None]:
    return ControllerResult(records, None, tuple(changes.warnings), is_atomic=False)


def _registered(image: MetadataImage, broker_id: int) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    return broker
