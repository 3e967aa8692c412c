"""Brokers come: registration. PURE.

A registration gets a new epoch, by which everything that an earlier life of the broker still has
under way is refused (invariant 12).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.features.features import elr_enabled
from penstock.controller.partitions.leadership import Changes, without_broker
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import RESERVED_UUIDS, uuid_text
from penstock.metadata.image import (
    METADATA_VERSION,
    BrokerImage,
    Endpoint,
    MetadataImage,
    SupportedFeature,
)
from penstock.metadata.snapshot import register_broker_record
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

_ANOTHER = (
    "Another broker is registered with that broker id. If the broker was recently restarted this "
    "should self-resolve once the heartbeat "
    "manager expires the broker's session."
)


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    """KafkaError STALE_BROKER_EPOCH unless this is the broker's present life."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
        )
    return broker


def register_broker(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    node: ControllerContext,
    *,
    cluster_id: str,
    alive: Callable[[int], bool],
) -> Decision[BrokerRegistrationResponse]:
    """The broker comes in fenced, or as it was if it only says more of itself. `alive` tells of
    which brokers something was heard lately.

    KafkaError where it is refused: the response has no place for the reason.
    """
    if request.cluster_id != cluster_id:
        reason = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    existing = image.brokers.get(request.broker_id)
    new_life = existing is None or existing.incarnation_id != request.incarnation_id
    if existing is not None and new_life and not existing.fenced and alive(existing.id):
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, _ANOTHER)
    _check_directories(image, request)
    _check_features(image, request)
    changes = _end_last_life(image, request, node) if new_life else Changes()
    broker = _registration(image, request, image.offset + len(changes.records) + 1)
    records = (*changes.records, register_broker_record(broker))
    return Decision(
        records, BrokerRegistrationResponse(broker_epoch=broker.epoch), tuple(changes.notes)
    )


def _end_last_life(
    image: MetadataImage, request: BrokerRegistrationRequest, node: ControllerContext
) -> Changes:
    """Whoever shows the epoch of its last life ended it cleanly, with all of its log on disk.
    Otherwise acknowledged records may be missing at its end, so that it is neither in sync nor
    eligible to lead any more (KIP-966)."""
    existing = image.brokers.get(request.broker_id)
    clean = existing is not None and existing.epoch == request.previous_broker_epoch
    return without_broker(image, node, request.broker_id, unclean=not clean and elr_enabled(image))


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
                reason = (
                    f"Broker {broker.id} is already registered with directory "
                    f"{uuid_text(directory)}"
                )
    if reason:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, reason)


def _check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    supported = {
        one.name: (one.min_supported_version, one.max_supported_version) for one in request.features
    }
    if METADATA_VERSION not in supported:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'"
        )
    for name, level in image.features.items():
        first, last = supported.get(name, (0, 0))
        if not first <= level <= last:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Unable to register because the broker does not support finalized version "
                f"{level} of {name}. "
                f"The broker wants a version between {first} and {last}, inclusive.",
            )


def _registration(
    image: MetadataImage, request: BrokerRegistrationRequest, offset: int
) -> BrokerImage:
    """A new life's epoch is the offset of its registration: who has applied the metadata up to
    there knows of itself."""
    existing = image.brokers.get(request.broker_id)
    same_life = existing is not None and existing.incarnation_id == request.incarnation_id
    return BrokerImage(
        id=request.broker_id,
        epoch=existing.epoch if existing is not None and same_life else offset,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(one.name, one.host, one.port, one.security_protocol)
            for one in request.listeners
        ),
        rack=request.rack,
        fenced=existing.fenced if existing is not None and same_life else True,
        in_controlled_shutdown=existing.in_controlled_shutdown
        if existing is not None and same_life
        else False,
        directories=request.log_dirs,
        features=tuple(
            SupportedFeature(one.name, one.min_supported_version, one.max_supported_version)
            for one in request.features
        ),
    )
