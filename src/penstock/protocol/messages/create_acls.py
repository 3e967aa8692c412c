"""CreateAcls: creates access control entries."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, message, string, struct


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    @struct
    class Creation:
        resource_type: int = int8("1+")
        resource_name: str = string("1+")
        resource_pattern_type: int = int8("1+", default=3)
        principal: str = string("1+")
        host: str = string("1+")
        operation: int = int8("1+")
        permission_type: int = int8("1+")

    creations: tuple[Creation, ...] = array(Creation, "1+")


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    @struct
    class Result:
        error_code: int = int16("1+")
        error_message: str | None = string("1+", nullable="1+")

    throttle_time_ms: int = int32("1+")
    results: tuple[Result, ...] = array(Result, "1+")
