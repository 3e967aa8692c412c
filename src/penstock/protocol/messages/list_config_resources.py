"""ListConfigResources: lists the resources of a type that can have settings, for instance client
metrics subscriptions."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, message, string, struct


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = array(int8, "1+")


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    @struct
    class ConfigResource:
        resource_name: str = string("0+")
        resource_type: int = int8("1+", default=16, ignorable=True)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: tuple[ConfigResource, ...] = array(ConfigResource, "0+")
