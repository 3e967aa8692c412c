"""AlterClientQuotas: sets and removes quotas of users and clients."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, float64, int16, int32, message, string, struct


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    @struct
    class Entry:
        @struct
        class Entity:
            entity_type: str = string("0+")
            entity_name: str | None = string("0+", nullable="0+")

        @struct
        class Op:
            key: str = string("0+")
            value: float = float64("0+")
            remove: bool = boolean("0+")

        entity: tuple[Entity, ...] = array(Entity, "0+")
        ops: tuple[Op, ...] = array(Op, "0+")

    entries: tuple[Entry, ...] = array(Entry, "0+")
    validate_only: bool = boolean("0+")


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    @struct
    class Entry:
        @struct
        class Entity:
            entity_type: str = string("0+")
            entity_name: str | None = string("0+", nullable="0+")

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        entity: tuple[Entity, ...] = array(Entity, "0+")

    throttle_time_ms: int = int32("0+")
    entries: tuple[Entry, ...] = array(Entry, "0+")
