"""DeleteTopics: deletes topics, by name or by id."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, message, string, struct, uuid


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    @struct
    class Topic:
        name: str | None = string("6+", nullable="6+", default=None)
        topic_id: UUID = uuid("6+")

    topics: tuple[Topic, ...] = array(Topic, "6+")
    topic_names: tuple[str, ...] = array(string, "1-5", ignorable=True)
    timeout_ms: int = int32("1+")


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    @struct
    class Response:
        name: str | None = string("1+", nullable="6+")
        topic_id: UUID = uuid("6+", ignorable=True)
        error_code: int = int16("1+")
        error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: tuple[Response, ...] = array(Response, "1+")
