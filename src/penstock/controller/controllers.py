"""Registrations of controllers (KIP-919). PURE."""

from __future__ import annotations

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_VOTER_LISTENERS
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.metadata_nodes import RegisterControllerRecord
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

# Features that a registration may name. Each is a few bytes of every image and snapshot.
_MAX_FEATURES = 100


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest, _context: ControllerContext
) -> ControllerResult[ControllerRegistrationResponse]:
    """Replace the registration of a controller, unless it is the same one. Raises KafkaError if it
    is invalid, or if the controller does not support the cluster's feature levels."""
    if (
        request.controller_id < 0
        or len(request.listeners) > MAX_VOTER_LISTENERS
        or len(request.features) > _MAX_FEATURES
    ):
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"the registration of controller {request.controller_id} is invalid",
        )
    supported = {feature.name: feature for feature in request.features}
    for name, level in image.features.items():
        feature = supported.get(name)
        first, last = (
            (0, 0)
            if feature is None
            else (feature.min_supported_version, feature.max_supported_version)
        )
        if level and not first <= level <= last:
            message = (
                f"controller {request.controller_id} supports {name} {first} to {last}, and the "
                f"cluster is at {level}: upgrade the controller"
            )
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    record = _record(request)
    is_known = image.controllers.get(request.controller_id) == record
    return ControllerResult(() if is_known else (record,), ControllerRegistrationResponse())


def _record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=tuple(
            RegisterControllerRecord.EndPoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ),
        features=tuple(
            RegisterControllerRecord.Feature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ),
    )
