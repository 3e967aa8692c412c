"""Brokers come and are let in: registration, and the end of being fenced. PURE.

A registration gets a new epoch, by which everything that an earlier life of the broker still has under way is refused (invariant 12).
"""

from __future__ import annotations

from penstock.controller.decision import Decision
from penstock.controller.elections import elected_with
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import RESERVED_UUIDS, uuid_text
from penstock.metadata.image import BrokerImage, Endpoint, MetadataImage, SupportedFeature
from penstock.metadata.snapshot import register_broker_record
from penstock.protocol.internal.metadata_nodes import UnfenceBrokerRecord
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    """KafkaError STALE_BROKER_EPOCH unless this is the broker's present life."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}")
    return broker


def register_broker(
    image: MetadataImage, request: BrokerRegistrationRequest, *, cluster_id: str | None = None
) -> Decision[BrokerRegistrationResponse]:
    """The broker comes in fenced, or as it was if it only says more of itself. Without a cluster id that is not checked.

    KafkaError where it is refused: the response has no place for the reason.
    """
    if cluster_id is not None and request.cluster_id != cluster_id:
        reason = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    _check_directories(image, request)
    _check_features(image, request)
    broker = _registration(image, request)
    return Decision((register_broker_record(broker),), BrokerRegistrationResponse(broker_epoch=broker.epoch))


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    reason = None
    if not request.log_dirs:
        reason = "No directories specified in request"
    elif any(directory.int < RESERVED_UUIDS for directory in request.log_dirs):
        reason = "Reserved directory ID in request"
    elif len(set(request.log_dirs)) != len(request.log_dirs):
        reason = "Duplicate directory ID in request"
    for broker in image.brokers.values():
        for directory in request.log_dirs:
            if broker.id != request.broker_id and directory in broker.directories:
                reason = f"Broker {broker.id} is already registered with directory {uuid_text(directory)}"
    if reason:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, reason)


def _check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    supported = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    for name, level in image.features.items():
        first, last = supported.get(name, (0, 0))
        if not first <= level <= last:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {first} and {last}, inclusive.",
            )


def _registration(image: MetadataImage, request: BrokerRegistrationRequest) -> BrokerImage:
    """The epoch is the offset at which the record will be, or a little less: it only has to rise."""
    existing = image.brokers.get(request.broker_id)
    same_life = existing is not None and existing.incarnation_id == request.incarnation_id
    return BrokerImage(
        id=request.broker_id,
        epoch=existing.epoch if existing is not None and same_life else image.offset + 1,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(Endpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners),
        rack=request.rack,
        fenced=existing.fenced if existing is not None and same_life else True,
        in_controlled_shutdown=existing.in_controlled_shutdown if existing is not None and same_life else False,
        directories=request.log_dirs,
        features=tuple(SupportedFeature(one.name, one.min_supported_version, one.max_supported_version) for one in request.features),
    )


def unfence_broker(image: MetadataImage, broker_id: int) -> Decision[None]:
    """The broker may lead from here on, and does where nobody else can. KafkaError BROKER_ID_NOT_REGISTERED."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered: it must register before it is unfenced"
        )
    if not broker.fenced:
        return Decision((), None)
    return Decision((UnfenceBrokerRecord(id=broker_id, epoch=broker.epoch), *elected_with(image, broker_id)), None)
