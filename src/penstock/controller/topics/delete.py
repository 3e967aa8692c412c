"""DeleteTopics: topics go with their partitions and settings, by name or by id. PURE."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID
from penstock.metadata.image import MetadataImage, TopicImage
from penstock.protocol.internal.metadata_topics import RemoveTopicRecord
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

Result = DeleteTopicsResponse.Response
Named = tuple[str | None, UUID]

NO_SUCH_TOPIC = "This server does not host this topic-partition."
NO_SUCH_TOPIC_ID = "This server does not host this topic ID."


def delete_topics(
    image: MetadataImage,
    request: DeleteTopicsRequest,
    node: ControllerContext,  # noqa: ARG001 - decisions over a client's request are all called alike
) -> Decision[DeleteTopicsResponse]:
    """Older versions give names alone, in a field of their own."""
    named: list[Named] = [(name, NO_UUID) for name in request.topic_names]
    named += [(topic.name, topic.topic_id) for topic in request.topics]
    times = Counter(named)
    found = [_find(image, one, times[one]) for one in times]
    wanted = Counter(topic.id for topic in found if isinstance(topic, TopicImage))
    results = tuple(_result(one, topic, wanted) for one, topic in zip(times, found, strict=True))
    records = tuple(
        RemoveTopicRecord(topic_id=topic_id) for topic_id, count in wanted.items() if count == 1
    )
    return Decision(records, DeleteTopicsResponse(responses=results))


def _find(image: MetadataImage, named: Named, times: int) -> TopicImage | KafkaError:
    """The topic, or why it is not deleted."""
    try:
        _check_named(*named, times)
        return _topic(image, *named)
    except KafkaError as error:
        return error


def _result(named: Named, found: TopicImage | KafkaError, wanted: Counter[UUID]) -> Result:
    name, topic_id = named
    if isinstance(found, TopicImage) and wanted[found.id] > 1:
        found = KafkaError(
            ErrorCode.INVALID_REQUEST,
            "The provided topic name maps to an ID that was already supplied.",
        )
    if isinstance(found, KafkaError):
        return Result(
            name=name, topic_id=topic_id, error_code=found.code, error_message=found.message
        )
    return Result(name=found.name, topic_id=found.id)


def _check_named(name: str | None, topic_id: UUID, times: int) -> None:
    reason = None
    if name is None and topic_id == NO_UUID:
        reason = "Neither topic name nor id were specified."
    elif name is not None and topic_id != NO_UUID:
        reason = "You may not specify both topic name and topic id."
    elif times > 1:
        reason = "Duplicate topic name." if name is not None else "Duplicate topic id."
    if reason:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _topic(image: MetadataImage, name: str | None, topic_id: UUID) -> TopicImage:
    topic = image.topic_by_id(topic_id) if name is None else image.topics.get(name)
    if topic is not None:
        return topic
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, NO_SUCH_TOPIC_ID)
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC)
