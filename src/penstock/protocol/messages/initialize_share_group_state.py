"""InitializeShareGroupState: a group coordinator sets up the state of share partitions with the
share coordinator (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct, uuid


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition: int = int32("0+")
            state_epoch: int = int32("0+")
            start_offset: int = int64("0+")

        topic_id: UUID = uuid("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    group_id: str = string("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    @struct
    class Result:
        @struct
        class Partition:
            partition: int = int32("0+")
            error_code: int = int16("0+")
            error_message: str | None = string("0+", nullable="0+", default=None)

        topic_id: UUID = uuid("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    results: tuple[Result, ...] = array(Result, "0+")
