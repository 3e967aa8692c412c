"""DescribeClientQuotas: lists the quotas of users and clients that match a filter."""

from __future__ import annotations

from penstock.protocol.schema import (
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    @struct
    class Component:
        entity_type: str = string("0+")
        match_type: int = int8("0+")
        match: str | None = string("0+", nullable="0+")

    components: tuple[Component, ...] = array(Component, "0+")
    strict: bool = boolean("0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    @struct
    class Entry:
        @struct
        class Entity:
            entity_type: str = string("0+")
            entity_name: str | None = string("0+", nullable="0+")

        @struct
        class Value:
            key: str = string("0+")
            value: float = float64("0+")

        entity: tuple[Entity, ...] = array(Entity, "0+")
        values: tuple[Value, ...] = array(Value, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: tuple[Entry, ...] | None = array(Entry, "0+", nullable="0+", may_be_encoded=True)
