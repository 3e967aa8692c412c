"""ControllerRegistration: a controller registers its endpoints and features with the active one."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest:
    @struct
    class Listener:
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    @struct
    class Feature:
        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    controller_id: int = int32("0+")
    incarnation_id: UUID = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    features: tuple[Feature, ...] = array(Feature, "0+")


@message(api_key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
