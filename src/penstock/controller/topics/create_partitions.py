"""CreatePartitions: topics get more partitions, never fewer. PURE."""

from __future__ import annotations

from collections import Counter

from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.topics.delete import NO_SUCH_TOPIC
from penstock.controller.topics.partitions import assigned_partition, placed_partitions
from penstock.controller.topics.placement import place_replicas
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.metadata.snapshot import partition_record
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)

Wanted = CreatePartitionsRequest.Topic
Result = CreatePartitionsResponse.Result


def create_partitions(
    image: MetadataImage,
    request: CreatePartitionsRequest,
    node: ControllerContext,  # noqa: ARG001 - decisions over a client's request are all called alike
) -> Decision[CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    records: list[object] = []
    results: dict[str, Result] = {}
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += _extend(image, topic, room=MAX_RECORDS_PER_DECISION - len(records))
            results[topic.name] = Result(name=topic.name)
        except KafkaError as error:
            results[topic.name] = Result(
                name=topic.name, error_code=error.code, error_message=error.message
            )
    response = CreatePartitionsResponse(results=tuple(results.values()))
    return Decision(() if request.validate_only else tuple(records), response)


def _extend(image: MetadataImage, wanted: Wanted, room: int) -> list[object]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC)
    first = len(topic.partitions)
    _check_count(wanted, first, room)
    added = (
        _placed(image, topic, wanted)
        if wanted.assignments is None
        else _assigned(image, topic, wanted)
    )
    return [
        partition_record(topic.id, index, partition) for index, partition in enumerate(added, first)
    ]


def _check_count(wanted: Wanted, existing: int, room: int) -> None:
    if wanted.count == existing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s)."
        )
    if wanted.count < existing:
        reason = (
            f"The topic {wanted.name} currently has {existing} partition(s); {wanted.count} "
            "would not be an increase."
        )
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, reason)
    additional = wanted.count - existing
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        reason = (
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if additional > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


def _factor(topic: TopicImage) -> int:
    """That of the first partition: Kafka lets them differ only by reassignment."""
    return len(topic.partitions[0].replicas)


def _assigned(image: MetadataImage, topic: TopicImage, wanted: Wanted) -> list[PartitionState]:
    first = len(topic.partitions)
    chosen = enumerate(wanted.assignments or (), first)
    return [
        assigned_partition(image, index, assignment.broker_ids, _factor(topic))
        for index, assignment in chosen
    ]


def _placed(image: MetadataImage, topic: TopicImage, wanted: Wanted) -> list[PartitionState]:
    first = len(topic.partitions)
    placed = place_replicas(
        image.brokers.values(), wanted.count - first, _factor(topic), seed=topic.id.int + first
    )
    return placed_partitions(image, placed)
