"""Fencing, unfencing, controlled shutdown and unregistration of brokers. PURE.

A fenced broker is registered, but leads no partition and is in no ISR. The records of its
partitions precede the one that fences it and follow the one that unfences it, so that no image has
a fenced leader. That holds after every record: a broker with hundreds of thousands of replicas
needs more records than fit into a batch.

It also takes too long for one turn of the event loop. So the caller first changes most partitions,
some per turn, by `leave_isrs`, each part decided on the image of that moment. The decision that
follows changes what is left. For the same reason `unfence_broker` elects leaders of few partitions,
and `elect_leaderless` those of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.change_builder import PartitionChanges
from penstock.controller.partitions.leader_and_isr import (
    each_partition,
    elect_where_leaderless,
    leaderless_partitions,
    remove_broker_from_isrs,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import DECIDED_PARTITIONS_A_TURN, MAX_RECORDS_PER_DECISION
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


def leave_isrs(
    image: MetadataImage,
    broker_id: int,
    partitions: Iterable[tuple[UUID, int]],
    context: ControllerContext,
    *,
    is_unclean_shutdown: bool = False,
) -> ControllerResult[None]:
    """Remove a broker that is about to be fenced, shut down or registered again from the ISRs and
    leaderships of these partitions, and after an unclean shutdown from the ELRs."""
    changes = remove_broker_from_isrs(
        image, context, broker_id, is_unclean_shutdown=is_unclean_shutdown, among=partitions
    )
    return _divisible(tuple(changes.records), changes)


def elect_leaderless(
    image: MetadataImage, partitions: Iterable[tuple[UUID, int]], context: ControllerContext
) -> ControllerResult[None]:
    """Elect leaders for those of these partitions that have none."""
    changes = elect_where_leaderless(image, context, among=partitions)
    return _divisible(tuple(changes.records), changes)


def unfence_broker(
    image: MetadataImage, broker_id: int, context: ControllerContext
) -> ControllerResult[None]:
    """Let the broker lead; it is elected for the first leaderless partitions. Raises KafkaError
    BROKER_ID_NOT_REGISTERED."""
    broker = _registered(image, broker_id)
    if not broker.fenced:
        return ControllerResult((), None)
    first = list(islice(each_partition(leaderless_partitions(image)), DECIDED_PARTITIONS_A_TURN))
    # A broker that is still shutting down leads nothing, fenced or not.
    added = None if broker.in_controlled_shutdown else broker_id
    changes = elect_where_leaderless(image, context, added, among=first)
    unfence = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, fenced=_FALSE
    )
    return _divisible((unfence, *changes.records), changes)


def mark_controlled_shutdown(image: MetadataImage, broker_id: int) -> ControllerResult[None]:
    """Let the broker lead nothing more and join no ISR."""
    return _divisible(_shutdown_records(_registered(image, broker_id)), PartitionChanges())


def begin_controlled_shutdown(
    image: MetadataImage, broker_id: int, context: ControllerContext
) -> ControllerResult[None]:
    """Move the broker's leaderships to others; it still serves requests."""
    broker = _registered(image, broker_id)
    changes = remove_broker_from_isrs(image, context, broker_id)
    return _divisible((*_shutdown_records(broker), *changes.records), changes)


def _shutdown_records(broker: BrokerImage) -> tuple[object, ...]:
    if broker.in_controlled_shutdown:
        return ()
    return (
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=_TRUE
        ),
    )


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
