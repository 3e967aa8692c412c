"""DeleteShareGroupOffsets: deletes the offsets of an empty share group for topics (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, message, string, struct, uuid


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    @struct
    class Topic:
        topic_name: str = string("0+")

    group_id: str = string("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    @struct
    class Response:
        topic_name: str = string("0+")
        topic_id: UUID = uuid("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: tuple[Response, ...] = array(Response, "0+")
