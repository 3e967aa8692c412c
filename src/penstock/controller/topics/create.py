"""CreateTopics: new topics with their partitions and settings. PURE.

Each topic succeeds or fails on its own; a request that asks for too much fails as a whole. Kafka's
order of checks and its words.
"""

from __future__ import annotations

from collections import Counter

from penstock.config.topic import log_config
from penstock.controller.configs.effective import DynamicBroker, effective_topic_settings
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.topics.names import (
    check_collision,
    check_creatable,
    check_topic_name,
    colliding_names,
)
from penstock.controller.topics.partitions import assigned_partition, placed_partitions
from penstock.controller.topics.placement import place_replicas
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import TOPIC, MetadataImage, PartitionState, TopicImage
from penstock.metadata.snapshot import partition_record
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.metadata_topics import TopicRecord
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

USE_DEFAULT = -1

Wanted = CreateTopicsRequest.Topic
Result = CreateTopicsResponse.Topic


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, node: ControllerContext
) -> Decision[CreateTopicsResponse]:
    wanted = {topic.name: topic for topic in request.topics}
    try:
        _check_total(request, node)
        decided = _create_each(image, request, node)
        records = tuple(record for topic_records, _result in decided for record in topic_records)
        _check_records(len(records))
    except KafkaError as error:
        return Decision(
            (), CreateTopicsResponse(topics=tuple(_failed(name, error) for name in wanted))
        )
    response = CreateTopicsResponse(topics=tuple(result for _records, result in decided))
    return Decision(() if request.validate_only else records, response)


def _check_total(request: CreateTopicsRequest, node: ControllerContext) -> None:
    """Before anything is made, so that a count of two thousand million costs nothing."""
    total = sum(len(topic.assignments) or _partition_count(topic, node) for topic in request.topics)
    if total > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _check_records(count: int) -> None:
    if count > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


def _partition_count(topic: Wanted, node: ControllerContext) -> int:
    return (
        node.num_partitions if topic.num_partitions == USE_DEFAULT else max(0, topic.num_partitions)
    )


def _create_each(
    image: MetadataImage, request: CreateTopicsRequest, node: ControllerContext
) -> list[tuple[list[object], Result]]:
    """In the order of the request, each name once."""
    times = Counter(topic.name for topic in request.topics)
    broker = DynamicBroker(image, node.broker)
    # Worked out once: a request may name thousands of topics, and few of them have settings of
    # their own.
    defaults = _shown(broker, {})
    collisions = colliding_names(image.topics)
    decided: dict[str, tuple[list[object], Result]] = {}
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_name(image, topic.name, collisions)
            made, configs = _create(image, topic, node, broker)
            decided[topic.name] = (
                _records(made, configs),
                _created(made, _shown(broker, configs) if configs else defaults),
            )
            # Kafka compares with the topics there are alone, and so lets a request create two that
            # collide.
            collisions |= colliding_names([topic.name])
        except KafkaError as error:
            decided[topic.name] = [], _failed(topic.name, error)
    return list(decided.values())


def _failed(name: str, error: KafkaError) -> Result:
    return Result(name=name, error_code=error.code, error_message=error.message)


def _check_name(image: MetadataImage, name: str, collisions: dict[str, str]) -> None:
    check_creatable(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_topic_name(name)
    check_collision(name, collisions)


def _create(
    image: MetadataImage, topic: Wanted, node: ControllerContext, broker: DynamicBroker
) -> tuple[TopicImage, dict[str, str]]:
    """The topic and its settings."""
    configs = _configs(topic)
    if configs:
        log_config(broker, configs)
    topic_id = node.new_uuid()
    partitions = (
        _assigned(image, topic)
        if topic.assignments
        else _placed(image, topic, node, seed=topic_id.int)
    )
    return TopicImage(topic.name, topic_id, dict(enumerate(partitions))), configs


def _configs(topic: Wanted) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _assigned(image: MetadataImage, topic: Wanted) -> list[PartitionState]:
    """Partitions whose replicas the client chose."""
    for field, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != USE_DEFAULT:
            reason = f"A manual partition assignment was specified, but {field} was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    partitions: dict[int, PartitionState] = {}
    factor = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            reason = f"Found multiple manual partition assignments for partition {index}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        partitions[index] = assigned_partition(image, index, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
    if sorted(partitions) != list(range(len(partitions))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [partitions[index] for index in range(len(partitions))]


def _placed(
    image: MetadataImage, topic: Wanted, node: ControllerContext, seed: int
) -> list[PartitionState]:
    """Partitions whose replicas we choose."""
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        reason = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    factor = (
        node.default_replication_factor
        if topic.replication_factor == USE_DEFAULT
        else topic.replication_factor
    )
    try:
        return placed_partitions(
            image,
            place_replicas(image.brokers.values(), _partition_count(topic, node), factor, seed),
        )
    except KafkaError as error:
        raise KafkaError(
            error.code, f"Unable to replicate the partition {factor} time(s): {error.message}"
        ) from error


def _records(topic: TopicImage, configs: dict[str, str]) -> list[object]:
    return [
        TopicRecord(name=topic.name, topic_id=topic.id),
        *(
            ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        ),
        *(
            partition_record(topic.id, index, partition)
            for index, partition in topic.partitions.items()
        ),
    ]


def _created(topic: TopicImage, configs: tuple[Result.Config, ...]) -> Result:
    return Result(
        name=topic.name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=configs,
    )


def _shown(broker: DynamicBroker, configs: dict[str, str]) -> tuple[Result.Config, ...]:
    return tuple(
        Result.Config(
            name=one.setting.name,
            value=None if one.setting.sensitive else one.value,
            config_source=one.source,
            is_sensitive=one.setting.sensitive,
        )
        for one in effective_topic_settings(broker, configs)
    )
