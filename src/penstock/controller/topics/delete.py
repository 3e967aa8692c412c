"""DeleteTopics: deletes topics by name or id. PURE."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID
from penstock.metadata.image import MetadataImage, TopicImage
from penstock.protocol.internal.metadata_topics import RemoveTopicRecord
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

Result = DeleteTopicsResponse.Response
# A topic is given by name or by id.
TopicKey = tuple[str | None, UUID]

NO_SUCH_TOPIC = "This server does not host this topic-partition."
NO_SUCH_TOPIC_ID = "This server does not host this topic ID."


def delete_topics(
    image: MetadataImage,
    request: DeleteTopicsRequest,
    context: ControllerContext,
) -> ControllerResult[DeleteTopicsResponse]:
    """Versions up to 5 have only names, in `topic_names`."""
    keys: list[TopicKey] = [(name, NO_UUID) for name in request.topic_names]
    keys += [(topic.name, topic.topic_id) for topic in request.topics]
    key_counts = Counter(keys)
    topics = [_find(image, key, count) for key, count in key_counts.items()]
    id_counts = Counter(topic.id for topic in topics if isinstance(topic, TopicImage))
    topics = [_allowed(topic, id_counts, context) for topic in topics]
    results = tuple(_result(key, topic) for key, topic in zip(key_counts, topics, strict=True))
    records = tuple(
        RemoveTopicRecord(topic_id=topic.id) for topic in topics if isinstance(topic, TopicImage)
    )
    return ControllerResult(records, DeleteTopicsResponse(responses=results))


def _find(image: MetadataImage, key: TopicKey, count: int) -> TopicImage | KafkaError:
    """Return the topic, or the reason why it cannot be deleted."""
    try:
        _check_key(*key, count)
        return _topic(image, *key)
    except KafkaError as error:
        return error


def _allowed(
    topic: TopicImage | KafkaError, id_counts: Counter[UUID], context: ControllerContext
) -> TopicImage | KafkaError:
    """Return the topic, or the reason why it cannot be deleted with the others."""
    if isinstance(topic, KafkaError):
        return topic
    if id_counts[topic.id] > 1:
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            "The provided topic name maps to an ID that was already supplied.",
        )
    try:
        context.record_mutations(len(topic.partitions))
    except KafkaError as error:
        return error
    return topic


def _result(key: TopicKey, topic: TopicImage | KafkaError) -> Result:
    name, topic_id = key
    if isinstance(topic, KafkaError):
        return Result(
            name=name, topic_id=topic_id, error_code=topic.code, error_message=topic.message
        )
    return Result(name=topic.name, topic_id=topic.id)


def _check_key(name: str | None, topic_id: UUID, count: int) -> None:
    reason = None
    if name is None and topic_id == NO_UUID:
        reason = "Neither topic name nor id were specified."
    elif name is not None and topic_id != NO_UUID:
        reason = "You may not specify both topic name and topic id."
    elif count > 1:
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
