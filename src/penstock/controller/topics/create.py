"""CreateTopics. PURE.

Each topic succeeds or fails independently; a request for too many partitions fails as a whole. The
order of the checks and the error messages are Kafka's.
"""

from __future__ import annotations

from collections import Counter

from penstock.controller.configs.effective import DynamicBrokerConfig
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.topics.assignment import assigned_partition, placed_partitions
from penstock.controller.topics.names import (
    check_collision,
    check_creatable,
    check_topic_name,
    colliding_names,
)
from penstock.controller.topics.replica_placer import place_replicas
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import TOPIC, MetadataImage, PartitionState, TopicImage
from penstock.metadata.snapshot import partition_record
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.metadata_topics import TopicRecord
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

USE_DEFAULT = -1

CreatableTopic = CreateTopicsRequest.Topic
Result = CreateTopicsResponse.Topic


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, context: ControllerContext
) -> ControllerResult[CreateTopicsResponse]:
    names = dict.fromkeys(topic.name for topic in request.topics)
    try:
        _check_total(request, context)
        results = _create_each(image, request, context)
        records = tuple(record for topic_records, _result in results for record in topic_records)
        _check_records(len(records))
    except KafkaError as error:
        return ControllerResult(
            (), CreateTopicsResponse(topics=tuple(_failed(name, error) for name in names))
        )
    response = CreateTopicsResponse(topics=tuple(result for _records, result in results))
    return ControllerResult(() if request.validate_only else records, response)


def _check_total(request: CreateTopicsRequest, context: ControllerContext) -> None:
    """Refuse the request before any partition is built: a request may ask for two billion."""
    total = sum(
        len(topic.assignments) or _partition_count(topic, context) for topic in request.topics
    )
    if total > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _check_records(count: int) -> None:
    if count > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


def _partition_count(topic: CreatableTopic, context: ControllerContext) -> int:
    return (
        context.num_partitions
        if topic.num_partitions == USE_DEFAULT
        else max(0, topic.num_partitions)
    )


def _create_each(
    image: MetadataImage, request: CreateTopicsRequest, context: ControllerContext
) -> list[tuple[list[object], Result]]:
    """Return records and result of each topic, in the order of the request, each name once."""
    counts = Counter(topic.name for topic in request.topics)
    broker = context.broker_configs.at(image)
    # Built once: a request may have thousands of topics, and few have overrides.
    defaults = _result_configs(broker, {})
    collisions = colliding_names(image.topics)
    results: dict[str, tuple[list[object], Result]] = {}
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_name(image, topic.name, collisions)
            created, configs = _create(image, topic, context, broker)
            context.record_mutations(len(created.partitions))
            results[topic.name] = (
                _records(created, configs),
                _created(created, _result_configs(broker, configs) if configs else defaults),
            )
            # Kafka compares only with existing topics, so that one request can create two that
            # collide.
            collisions |= colliding_names([topic.name])
        except KafkaError as error:
            results[topic.name] = [], _failed(topic.name, error)
    return list(results.values())


def _failed(name: str, error: KafkaError) -> Result:
    return Result(name=name, error_code=error.code, error_message=error.message)


def _check_name(image: MetadataImage, name: str, collisions: dict[str, str]) -> None:
    check_creatable(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_topic_name(name)
    check_collision(name, collisions)


def _create(
    image: MetadataImage,
    topic: CreatableTopic,
    context: ControllerContext,
    broker: DynamicBrokerConfig,
) -> tuple[TopicImage, dict[str, str]]:
    """Return the topic and its overrides."""
    configs = _configs(topic)
    if configs:
        broker.log_config(configs)
    topic_id = context.new_uuid()
    partitions = (
        _assigned(image, topic)
        if topic.assignments
        else _placed(image, topic, context, seed=topic_id.int)
    )
    return TopicImage(topic.name, topic_id, dict(enumerate(partitions))), configs


def _configs(topic: CreatableTopic) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _assigned(image: MetadataImage, topic: CreatableTopic) -> list[PartitionState]:
    """Return partitions with the assignment of the request."""
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
    image: MetadataImage, topic: CreatableTopic, context: ControllerContext, seed: int
) -> list[PartitionState]:
    """Return partitions with an assignment by the replica placer."""
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        reason = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    factor = (
        context.default_replication_factor
        if topic.replication_factor == USE_DEFAULT
        else topic.replication_factor
    )
    try:
        return placed_partitions(
            image,
            place_replicas(image.brokers.values(), _partition_count(topic, context), factor, seed),
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


def _result_configs(
    broker: DynamicBrokerConfig, configs: dict[str, str]
) -> tuple[Result.Config, ...]:
    shown = []
    for effective in broker.topic_settings(configs):
        is_sensitive = effective.setting.sensitive
        shown.append(
            Result.Config(
                name=effective.setting.name,
                value=None if is_sensitive else effective.value,
                config_source=effective.source,
                is_sensitive=is_sensitive,
            )
        )
    return tuple(shown)
