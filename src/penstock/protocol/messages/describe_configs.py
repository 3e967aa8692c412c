"""DescribeConfigs: describes the settings of topics, brokers, groups and so on."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int8, int16, int32, message, string, struct


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    @struct
    class Resource:
        resource_type: int = int8("1+")
        resource_name: str = string("1+")
        configuration_keys: tuple[str, ...] | None = array(string, "1+", nullable="1+")

    resources: tuple[Resource, ...] = array(Resource, "1+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    @struct
    class Result:
        @struct
        class Config:
            @struct
            class Synonym:
                name: str = string("1+")
                value: str | None = string("1+", nullable="1+")
                source: int = int8("1+")

            name: str = string("1+")
            value: str | None = string("1+", nullable="1+")
            read_only: bool = boolean("1+")
            config_source: int = int8("1+", default=-1, ignorable=True)
            is_sensitive: bool = boolean("1+")
            synonyms: tuple[Synonym, ...] = array(Synonym, "1+", ignorable=True)
            config_type: int = int8("3+", ignorable=True)
            documentation: str | None = string("3+", nullable="1+", ignorable=True)

        error_code: int = int16("1+")
        error_message: str | None = string("1+", nullable="1+")
        resource_type: int = int8("1+")
        resource_name: str = string("1+")
        configs: tuple[Config, ...] = array(Config, "1+")

    throttle_time_ms: int = int32("1+")
    results: tuple[Result, ...] = array(Result, "1+")
