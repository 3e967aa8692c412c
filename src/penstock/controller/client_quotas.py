"""AlterClientQuotas: quotas of users, client ids and addresses in the metadata log (Kafka's
ClientQuotaControlManager). PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_QUOTA_NAME_CHARACTERS, MAX_QUOTAS_PER_REQUEST
from penstock.metadata.client_quotas_delta import quota_record
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.security.quotas.entities import (
    CLIENT_KEYS,
    ENTITY_TYPES,
    IP,
    IP_KEYS,
    QuotaEntity,
    entity_text,
    normalized_address,
    quota_entity,
)

Entry = AlterClientQuotasRequest.Entry
Result = AlterClientQuotasResponse.Entry

# Kafka takes numbers for whole that differ from one by less than this.
_FRACTION = 1e-6


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest, _context: ControllerContext
) -> ControllerResult[AlterClientQuotasResponse]:
    """Set and remove quotas. Each entity succeeds or fails on its own, and may occur once. All
    records are written, or none."""
    if sum(max(1, len(entry.ops)) for entry in request.entries) > MAX_QUOTAS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot alter more than {MAX_QUOTAS_PER_REQUEST} quotas in a single request. Send "
            "them in several requests.",
        )
    records: list[object] = []
    results: dict[QuotaEntity, KafkaError | None] = {}
    for entry in request.entries:
        entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
        try:
            values = {op.key: None if op.remove else op.value for op in entry.ops}
            # Kafka has one message for an entity and for a key that occurs twice.
            if entity in results or len(values) < len(entry.ops):
                raise _invalid(f"Ignoring duplicate entity {entity_text(entity)}")
            records += _changes(image, entity, values)
            results[entity] = None
        except KafkaError as error:
            results[entity] = error
    response = AlterClientQuotasResponse(
        entries=tuple(_result(entity, error) for entity, error in results.items())
    )
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _result(entity: QuotaEntity, error: KafkaError | None) -> Result:
    return Result(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=tuple(Result.Entity(entity_type=kind, entity_name=name) for kind, name in entity),
    )


def _changes(
    image: MetadataImage, entity: QuotaEntity, values: Mapping[str, float | None]
) -> list[object]:
    """Return the records that change what is there."""
    keys = _keys(entity)
    current = image.client_quotas.get(entity, {})
    changes: list[object] = []
    for key, value in values.items():
        if value is not None:
            _check_value(keys, key, value)
        if value != current.get(key):
            changes.append(quota_record(entity, key, value))
    return changes


def _keys(entity: QuotaEntity) -> Mapping[str, int | None]:
    """Check an entity, and return the keys that it may have."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name) > MAX_QUOTA_NAME_CHARACTERS:
            raise _invalid(f"The {kind} has more than {MAX_QUOTA_NAME_CHARACTERS} characters")
    parts = dict(entity)
    if IP not in parts:
        return CLIENT_KEYS
    if len(parts) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    address = parts[IP]
    # Kafka resolves names of hosts. They may have other addresses on each broker and later.
    if address is not None and normalized_address(address) is None:
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return IP_KEYS


def _check_value(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    most = keys[key]
    # Kafka accepts both without a bound. Neither is a number in JSON.
    if math.isnan(value) or (most is None and math.isinf(value)):
        raise _invalid(f"Quota {key} must be a number")
    if most is None:
        return
    # As in Java, the largest LONG is 2**63 as a float, which sets no limit.
    if value > float(most):
        kind = "an INT" if most < 2**32 else "a LONG"
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if value % 1 > _FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
