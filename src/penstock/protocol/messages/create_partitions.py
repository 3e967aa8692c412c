"""CreatePartitions: adds partitions to topics."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int16, int32, message, string, struct


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    @struct
    class Topic:
        @struct
        class Assignment:
            broker_ids: tuple[int, ...] = array(int32, "0+")

        name: str = string("0+")
        count: int = int32("0+")
        assignments: tuple[Assignment, ...] | None = array(Assignment, "0+", nullable="0+")

    topics: tuple[Topic, ...] = array(Topic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    @struct
    class Result:
        name: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    results: tuple[Result, ...] = array(Result, "0+")
