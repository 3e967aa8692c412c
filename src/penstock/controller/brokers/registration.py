"""Registration of brokers. PURE.

A registration gets a new broker epoch, which fences all requests of earlier incarnations (rule 12).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.features import elr_enabled
from penstock.controller.partitions.change_builder import PartitionChanges
from penstock.controller.partitions.leader_and_isr import remove_broker_from_isrs
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

_DUPLICATE = (
    "Another broker is registered with that broker id. If the broker was recently restarted this "
    "should self-resolve once the heartbeat manager expires the broker's session."
)


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    """Raise KafkaError STALE_BROKER_EPOCH unless this is the epoch of the current registration."""
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
    context: ControllerContext,
    *,
    cluster_id: str,
    has_session: Callable[[int], bool],
) -> ControllerResult[BrokerRegistrationResponse]:
    """Register a broker as fenced. A broker that registers again in the same incarnation keeps its
    epoch and state.

    `has_session` tells if a broker sent a heartbeat within the session timeout. Raises KafkaError
    if the registration is refused: the response has no field for the reason.
    """
    check_registration(image, request, cluster_id=cluster_id, has_session=has_session)
    changes = PartitionChanges()
    if is_new_incarnation(image, request):
        changes = remove_broker_from_isrs(
            image,
            context,
            request.broker_id,
            is_unclean_shutdown=loses_eligibility(image, request),
        )
    broker = _registration(image, request, image.offset + len(changes.records) + 1)
    records = (*changes.records, register_broker_record(broker))
    response = BrokerRegistrationResponse(broker_epoch=broker.epoch)
    return ControllerResult(records, response, tuple(changes.warnings), is_atomic=False)


def check_registration(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    has_session: Callable[[int], bool],
) -> None:
    """Raise KafkaError if the registration is refused."""
    if request.cluster_id != cluster_id:
        reason = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    existing = image.brokers.get(request.broker_id)
    if (
        existing is not None
        and is_new_incarnation(image, request)
        and not existing.fenced
        and has_session(existing.id)
    ):
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, _DUPLICATE)
    _check_directories(image, request)
    _check_features(image, request)


def is_new_incarnation(image: MetadataImage, request: BrokerRegistrationRequest) -> bool:
    """Return True if this is another process of the broker: it leaves its ISRs."""
    existing = image.brokers.get(request.broker_id)
    return existing is None or existing.incarnation_id != request.incarnation_id


def loses_eligibility(image: MetadataImage, request: BrokerRegistrationRequest) -> bool:
    """Return True if the broker also leaves its ELRs, after an unclean shutdown (KIP-966).

    A broker that presents its previous epoch shut down cleanly, with its log on disk. Otherwise
    acknowledged records may be missing at its log end.
    """
    existing = image.brokers.get(request.broker_id)
    is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
    return not is_clean and elr_enabled(image)


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
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
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
                f"{level} of {name}. The broker wants a version between {first} and {last}, "
                "inclusive.",
            )


def _registration(
    image: MetadataImage, request: BrokerRegistrationRequest, offset: int
) -> BrokerImage:
    """Return the new registration. The epoch of a new incarnation is the offset of its record: a
    broker that replayed up to its epoch has seen its own registration."""
    existing = image.brokers.get(request.broker_id)
    is_same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    return BrokerImage(
        id=request.broker_id,
        epoch=existing.epoch if existing is not None and is_same_incarnation else offset,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(listener.name, listener.host, listener.port, listener.security_protocol)
            for listener in request.listeners
        ),
        rack=request.rack,
        fenced=existing.fenced if existing is not None and is_same_incarnation else True,
        in_controlled_shutdown=existing.in_controlled_shutdown
        if existing is not None and is_same_incarnation
        else False,
        directories=request.log_dirs,
        # The broker reports them with its heartbeats. Until then they stay: no replica is placed on
        # a cordoned broker because it restarts.
        cordoned_directories=tuple(
            directory
            for directory in (existing.cordoned_directories if existing is not None else ())
            if directory in request.log_dirs
        ),
        features=tuple(
            SupportedFeature(
                feature.name, feature.min_supported_version, feature.max_supported_version
            )
            for feature in request.features
        ),
    )
