"""AlterConfigs: replaces all dynamic settings of a resource. Deprecated in favour of
IncrementalAlterConfigs."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int8, int16, int32, message, string, struct


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    @struct
    class Resource:
        @struct
        class Config:
            name: str = string("0+")
            value: str | None = string("0+", nullable="0+")

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: tuple[Config, ...] = array(Config, "0+")

    resources: tuple[Resource, ...] = array(Resource, "0+")
    validate_only: bool = boolean("0+")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    @struct
    class Response:
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")

    throttle_time_ms: int = int32("0+")
    responses: tuple[Response, ...] = array(Response, "0+")
