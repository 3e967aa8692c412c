"""PushTelemetry: a client pushes its metrics (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import blob, boolean, int8, int16, int32, message, uuid


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = blob("0+")


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
