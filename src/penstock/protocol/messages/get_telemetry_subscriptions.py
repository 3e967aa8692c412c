"""GetTelemetrySubscriptions: a client asks which of its metrics the cluster wants (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, boolean, int8, int16, int32, message, string, uuid


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: UUID = uuid("0+")


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: tuple[int, ...] = array(int8, "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: tuple[str, ...] = array(string, "0+")
