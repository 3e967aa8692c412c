"""CreateTopics: creates topics."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    @struct
    class Topic:
        @struct
        class Assignment:
            partition_index: int = int32("2+")
            broker_ids: tuple[int, ...] = array(int32, "2+")

        @struct
        class Config:
            name: str = string("2+")
            value: str | None = string("2+", nullable="2+")

        name: str = string("2+")
        num_partitions: int = int32("2+")
        replication_factor: int = int16("2+")
        assignments: tuple[Assignment, ...] = array(Assignment, "2+")
        configs: tuple[Config, ...] = array(Config, "2+")

    topics: tuple[Topic, ...] = array(Topic, "2+")
    timeout_ms: int = int32("2+", default=60000)
    validate_only: bool = boolean("2+")


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    @struct
    class Topic:
        @struct
        class Config:
            name: str = string("5+")
            value: str | None = string("5+", nullable="5+")
            read_only: bool = boolean("5+")
            config_source: int = int8("5+", default=-1, ignorable=True)
            is_sensitive: bool = boolean("5+")

        name: str = string("2+")
        topic_id: UUID = uuid("7+", ignorable=True)
        error_code: int = int16("2+")
        error_message: str | None = string("2+", nullable="2+", ignorable=True)
        topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
        num_partitions: int = int32("5+", default=-1, ignorable=True)
        replication_factor: int = int16("5+", default=-1, ignorable=True)
        configs: tuple[Config, ...] | None = array(Config, "5+", nullable="5+", ignorable=True)

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "2+")
