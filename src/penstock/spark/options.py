"""The options of the source and the sink, as Spark's own Kafka source has them: read, checked, and
turned into values. Pure.

Owns every option's name, default and meaning. Must never know Spark, nor ask a cluster: what only a
cluster can tell is in `offsets`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.offsets import Isolation
from penstock.ids import TopicPartition
from penstock.records.compression import Codec
from penstock.spark.kafka_options import KafkaOptions
from penstock.spark.option_values import OptionError, OptionTable, assigned, duration_s, flag, whole
from penstock.spark.source.positions import (
    EARLIEST,
    LATEST,
    AtOffsets,
    Position,
    at_times,
    position,
)

SOURCE_OPTIONS = OptionTable(
    "source",
    (
        "assign",
        "subscribe",
        "subscribePattern",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "startingTimestamp",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "includeHeaders",
        "minPartitions",
        "maxRecordsPerPartition",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "filterPushdown",
        "groupId",
    ),
    # Tuning of Spark's own source, for which there is nothing here to tune.
    without_effect=(
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "partition.metadata.cache.ttl.ms",
    ),
)
SINK_OPTIONS = OptionTable(
    "sink", ("topic",), without_effect=("includeHeaders", "checkpointLocation", "queryName")
)


@dataclass(frozen=True, slots=True)
class Topics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All topics whose whole name matches."""

    expression: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: frozenset[TopicPartition]


Subscription = Topics | Pattern | Assigned


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """`patience_s` is how long trouble that may pass is waited out: a leader that moves, a broker
    that restarts."""

    bootstrap_servers: str
    client_id: str
    request_timeout_s: float
    patience_s: float


@dataclass(frozen=True, slots=True)
class FetchOptions:
    isolation: Isolation
    max_bytes: int
    max_wait_s: float


@dataclass(frozen=True, slots=True)
class SourceOptions:
    connection: ConnectionOptions
    fetch: FetchOptions
    subscription: Subscription
    starting: Position
    ending: Position
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    # Makes offset lookups of filters. Off by default, because Spark (4.3) keeps the plan of a
    # filtered read for all other uses of the same DataFrame, which then miss rows: it is for one
    # that is used once.
    filter_pushdown: bool
    # To which a query's offsets are committed after each batch, for others to see: Spark's
    # checkpoint is what it goes on from.
    group_id: str | None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    connection: ConnectionOptions
    topic: str | None
    acks: int
    idempotent: bool
    codec: Codec
    batch_bytes: int
    max_request_bytes: int
    buffer_bytes: int
    delivery_timeout_s: float


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """OptionError for what is unknown, missing, malformed or does not go together."""
    given = SOURCE_OPTIONS.read(options)
    kafka = KafkaOptions.of_source(options)
    if streaming:
        _refuse_ends(given)
    minimum, maximum = (
        whole(given, name, least=1) for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")
    )
    if minimum is not None and maximum is not None and minimum > maximum:
        raise OptionError(
            f"minOffsetsPerTrigger is {minimum}, more than maxOffsetsPerTrigger ({maximum}): make "
            "it at most as large"
        )
    return SourceOptions(
        connection=_connection(kafka),
        fetch=FetchOptions(
            isolation=kafka.isolation(),
            max_bytes=kafka.whole("max.partition.fetch.bytes", default=4 * 1024 * 1024, least=1),
            max_wait_s=kafka.whole("fetch.max.wait.ms", default=500, least=0) / 1000,
        ),
        subscription=_subscription(given),
        starting=_starting(given, streaming),
        ending=_ending(given),
        fail_on_data_loss=flag(given, "failOnDataLoss", default=True),
        include_headers=flag(given, "includeHeaders", default=False),
        min_partitions=whole(given, "minPartitions", least=1),
        max_records_per_partition=whole(given, "maxRecordsPerPartition", least=1),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_s=duration_s(given, "maxTriggerDelay", default="15m"),
        filter_pushdown=flag(given, "filterPushdown", default=False),
        group_id=_group_id(given, streaming),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    given = SINK_OPTIONS.read(options)
    kafka = KafkaOptions.of_sink(options)
    acks = kafka.acks()
    topic = given.get("topic", "").strip()
    if "topic" in given and not topic:
        raise OptionError(
            "the option topic is empty: name the topic to write to, or leave it out and have a "
            "column topic"
        )
    return SinkOptions(
        connection=_connection(kafka),
        topic=topic or None,
        acks=acks,
        idempotent=kafka.idempotent(acks),
        codec=kafka.codec(),
        batch_bytes=kafka.whole("batch.size", default=512 * 1024, least=1),
        max_request_bytes=kafka.whole("max.request.size", default=1024 * 1024, least=1),
        buffer_bytes=kafka.whole("buffer.memory", default=32 * 1024 * 1024, least=1),
        delivery_timeout_s=kafka.whole("delivery.timeout.ms", default=120_000, least=1) / 1000,
    )


def _connection(kafka: KafkaOptions) -> ConnectionOptions:
    return ConnectionOptions(
        bootstrap_servers=kafka.bootstrap_servers(),
        client_id=kafka.given.get("client.id", "penstock-spark"),
        request_timeout_s=kafka.whole("request.timeout.ms", default=30_000, least=1) / 1000,
        patience_s=kafka.whole("default.api.timeout.ms", default=60_000, least=1) / 1000,
    )


def _subscription(given: Mapping[str, str]) -> Subscription:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(names) != 1:
        found = " and ".join(names) if names else "none of them"
        raise OptionError(
            f"what to read is said by one of subscribe, subscribePattern and assign, and {found} "
            "is given: give one"
        )
    if names == ["assign"]:
        return Assigned(assigned(given["assign"]))
    if names == ["subscribePattern"]:
        return Pattern(_expression(given["subscribePattern"].strip()))
    topics = tuple(
        dict.fromkeys(name.strip() for name in given["subscribe"].split(",") if name.strip())
    )
    if not topics:
        raise OptionError(
            "subscribe names no topic: give one, or several separated by commas, like "
            '"orders,payments"'
        )
    return Topics(topics)


def _expression(text: str) -> re.Pattern[str]:
    try:
        if text:
            return re.compile(text)
    except re.error as error:
        raise OptionError(
            f"subscribePattern is {text!r}, which is no regular expression: {error}"
        ) from error
    raise OptionError(
        "subscribePattern is empty: give a regular expression for whole topic names, like "
        '"orders-.*"'
    )


def _starting(given: Mapping[str, str], streaming: bool) -> Position:
    by_time = at_times(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    found = position(given, "startingOffsets", default=LATEST if streaming else EARLIEST)
    if not streaming:
        _refuse_edge(
            "startingOffsets",
            found,
            LATEST,
            "a batch read that begins at the end has nothing to read: use earliest",
        )
    return found


def _ending(given: Mapping[str, str]) -> Position:
    by_time = at_times(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    found = position(given, "endingOffsets", default=LATEST)
    _refuse_edge(
        "endingOffsets",
        found,
        EARLIEST,
        "a read that ends at the beginning has nothing to read: use latest",
    )
    return found


def _refuse_edge(option: str, found: Position, edge: int, advice: str) -> None:
    offsets = found.offsets.values() if isinstance(found, AtOffsets) else [found]
    if edge in offsets:
        raise OptionError(
            f"{option} has {'latest (-1)' if edge == LATEST else 'earliest (-2)'}; {advice}"
        )


def _group_id(given: Mapping[str, str], streaming: bool) -> str | None:
    group_id = given.get("groupId")
    if group_id is not None and not streaming:
        raise OptionError(
            "groupId is for streams, whose offsets are committed to it at each batch: leave it "
            "out of a batch read"
        )
    if group_id is not None and not group_id.strip():
        raise OptionError(
            "the option groupId is empty: name the group that the query's offsets are committed "
            "to, or leave it out"
        )
    return group_id


def _refuse_ends(given: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name in given:
            raise OptionError(
                f"{name} is for batch reads: a stream has no end. Leave it out, or use read "
                "instead of readStream"
            )
