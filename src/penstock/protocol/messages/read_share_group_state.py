"""ReadShareGroupState: a share partition's leader reads its state from the share coordinator
(KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int8, int16, int32, int64, message, string, struct, uuid


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition: int = int32("0+")
            leader_epoch: int = int32("0+")

        topic_id: UUID = uuid("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    group_id: str = string("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    @struct
    class Result:
        @struct
        class Partition:
            @struct
            class StateBatch:
                first_offset: int = int64("0+")
                last_offset: int = int64("0+")
                delivery_state: int = int8("0+")
                delivery_count: int = int16("0+")

            partition: int = int32("0+")
            error_code: int = int16("0+")
            error_message: str | None = string("0+", nullable="0+", default=None)
            state_epoch: int = int32("0+")
            start_offset: int = int64("0+")
            state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")

        topic_id: UUID = uuid("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    results: tuple[Result, ...] = array(Result, "0+")
