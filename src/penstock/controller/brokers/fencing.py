"""Brokers are shut out and let in again: fencing, unfencing, controlled shutdown, unregistering.
PURE.

A fenced broker is registered, but leads nothing and is in sync with nothing. Records about its
partitions come before the one that fences it, so that no image has a leader that is fenced; and
behind the one that lets it in.
"""

from __future__ import annotations

from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.partitions.leadership import with_broker, without_broker
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

# What a BrokerRegistrationChangeRecord says of `fenced` and `in_controlled_shutdown`.
NO_LONGER, FROM_NOW_ON = -1, 1


def fence_broker(image: MetadataImage, broker_id: int, node: ControllerContext) -> Decision[None]:
    """The broker leads no more and is in sync no more. KafkaError BROKER_ID_NOT_REGISTERED."""
    broker = _registered(image, broker_id)
    if broker.fenced:
        return Decision((), None)
    changes = without_broker(image, node, broker_id)
    fence = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, fenced=FROM_NOW_ON
    )
    return Decision((*changes.records, fence), None, tuple(changes.notes))


def unfence_broker(image: MetadataImage, broker_id: int, node: ControllerContext) -> Decision[None]:
    """The broker may lead from here on, and does where nobody else can. KafkaError
    BROKER_ID_NOT_REGISTERED."""
    broker = _registered(image, broker_id)
    if not broker.fenced:
        return Decision((), None)
    changes = with_broker(image, node, broker_id)
    unfence = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, fenced=NO_LONGER
    )
    return Decision((unfence, *changes.records), None, tuple(changes.notes))


def begin_controlled_shutdown(
    image: MetadataImage, broker_id: int, node: ControllerContext
) -> Decision[None]:
    """The broker still answers, but its partitions move to others."""
    broker = _registered(image, broker_id)
    leaves = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=FROM_NOW_ON
    )
    changes = without_broker(image, node, broker_id)
    first = () if broker.in_controlled_shutdown else (leaves,)
    return Decision((*first, *changes.records), None, tuple(changes.notes))


def unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, node: ControllerContext
) -> Decision[UnregisterBrokerResponse]:
    """The broker is forgotten until it registers again. Its replicas stay assigned to it."""
    try:
        broker = _registered(image, request.broker_id)
        changes = without_broker(image, node, broker.id)
        if len(changes.records) >= MAX_RECORDS_PER_DECISION:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
            )
    except KafkaError as error:
        return Decision(
            (), UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
        )
    gone = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Decision((*changes.records, gone), UnregisterBrokerResponse(), tuple(changes.notes))


def _registered(image: MetadataImage, broker_id: int) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    return broker
