"""CreatePartitions: adds partitions to topics. PURE."""

from __future__ import annotations

from collections import Counter

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.reassignment import target_replicas
from penstock.controller.topics.assignment import assigned_partition, placed_partitions
from penstock.controller.topics.delete import NO_SUCH_TOPIC
from penstock.controller.topics.replica_placer import place_replicas
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.metadata.snapshot import partition_record
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)

CreatePartitionsTopic = CreatePartitionsRequest.Topic
Result = CreatePartitionsResponse.Result


def create_partitions(
    image: MetadataImage,
    request: CreatePartitionsRequest,
    context: ControllerContext,
) -> ControllerResult[CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    records: list[object] = []
    results: dict[str, Result] = {}
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            added = _add_partitions(image, topic, room=MAX_RECORDS_PER_DECISION - len(records))
            context.record_mutations(len(added))
            records += added
            results[topic.name] = Result(name=topic.name)
        except KafkaError as error:
            results[topic.name] = Result(
                name=topic.name, error_code=error.code, error_message=error.message
            )
    response = CreatePartitionsResponse(results=tuple(results.values()))
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _add_partitions(
    image: MetadataImage, requested: CreatePartitionsTopic, room: int
) -> list[object]:
    topic = image.topics.get(requested.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC)
    first = len(topic.partitions)
    _check_count(requested, first, room)
    added = (
        _placed(image, topic, requested)
        if requested.assignments is None
        else _assigned(image, topic, requested)
    )
    return [
        partition_record(topic.id, index, partition) for index, partition in enumerate(added, first)
    ]


def _check_count(requested: CreatePartitionsTopic, existing: int, room: int) -> None:
    if requested.count == existing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s)."
        )
    if requested.count < existing:
        reason = (
            f"The topic {requested.name} currently has {existing} partition(s); {requested.count} "
            "would not be an increase."
        )
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, reason)
    additional = requested.count - existing
    if requested.assignments is not None and len(requested.assignments) != additional:
        reason = (
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(requested.assignments)} assignment(s) were specified."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if additional > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


def _factor(topic: TopicImage) -> int:
    """Return the factor of the first partition: in Kafka only a reassignment makes them differ.
    While it moves, replicas that are to be removed do not count."""
    return len(target_replicas(topic.partitions[0]))


def _assigned(
    image: MetadataImage, topic: TopicImage, requested: CreatePartitionsTopic
) -> list[PartitionState]:
    first = len(topic.partitions)
    assignments = enumerate(requested.assignments or (), first)
    return [
        assigned_partition(image, index, assignment.broker_ids, _factor(topic))
        for index, assignment in assignments
    ]


def _placed(
    image: MetadataImage, topic: TopicImage, requested: CreatePartitionsTopic
) -> list[PartitionState]:
    first = len(topic.partitions)
    placed = place_replicas(
        image.brokers.values(), requested.count - first, _factor(topic), seed=topic.id.int + first
    )
    return placed_partitions(image, placed)
