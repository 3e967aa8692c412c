"""IncrementalAlterConfigs: sets, deletes, extends or shortens single dynamic settings."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int8, int16, int32, message, string, struct


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    @struct
    class Resource:
        @struct
        class Config:
            name: str = string("0+")
            config_operation: int = int8("0+")
            value: str | None = string("0+", nullable="0+")

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: tuple[Config, ...] = array(Config, "0+")

    resources: tuple[Resource, ...] = array(Resource, "0+")
    validate_only: bool = boolean("0+")


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    @struct
    class Response:
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")

    throttle_time_ms: int = int32("0+")
    responses: tuple[Response, ...] = array(Response, "0+")
