"""Options of `spark.read` and `spark.readStream` with format("penstock"). Pure.

The kafka.* options are in `kafka`, startingOffsets and endingOffsets in `offset_limits`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.offsets import IsolationLevel
from penstock.ids import TopicPartition
from penstock.spark.options.columns import HEADERS_COLUMN, ColumnOptions, column_options
from penstock.spark.options.kafka import ConnectionOptions, KafkaOptions
from penstock.spark.options.offset_limits import OffsetLimit, ending_limit, starting_limit
from penstock.spark.options.values import (
    OptionError,
    OptionNames,
    bool_option,
    bytes_option,
    duration_option,
    int_option,
    partition_set,
)

SOURCE_OPTIONS = OptionNames(
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
        "jsonFields",
        "columns",
        "minPartitions",
        "maxRecordsPerPartition",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "filterPushdown",
        "groupId",
    ),
    # Tuning of Spark's own connector that has no counterpart here.
    ignored=(
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "partition.metadata.cache.ttl.ms",
    ),
)


# The value of filterPushdown by which `penstock sql` states that a query reads a DataFrame once.
FILTERED_READ_ONCE = "read-once"


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]

    def includes(self, partition: TopicPartition) -> bool:
        return partition.topic in self.topics


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All topics whose full name matches."""

    pattern: re.Pattern[str]

    def includes(self, partition: TopicPartition) -> bool:
        return self.pattern.fullmatch(partition.topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: frozenset[TopicPartition]

    def includes(self, partition: TopicPartition) -> bool:
        return partition in self.partitions


Subscription = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class FetchOptions:
    isolation: IsolationLevel
    max_bytes: int
    max_wait_s: float


@dataclass(frozen=True, slots=True)
class SourceOptions:
    connection: ConnectionOptions
    fetch: FetchOptions
    subscription: Subscription
    starting: OffsetLimit
    ending: OffsetLimit
    fail_on_data_loss: bool
    columns: ColumnOptions
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    # How old the known partitions of the subscribed topics may be, and so how soon a streaming
    # query finds new ones. Kafka's clients have 5 minutes.
    metadata_max_age_s: float
    # Narrows the offsets to read by the query's filters. Only for a DataFrame that one query reads
    # once, as `penstock sql` makes sure.
    filter_pushdown: bool
    # Consumer group to which a streaming query commits its offsets after each batch, so that tools
    # show its lag. The query itself resumes from Spark's checkpoint.
    group_id: str | None

    @property
    def include_headers(self) -> bool:
        return HEADERS_COLUMN in self.columns.names


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options of a source.

    OptionError if an option is unknown, missing or invalid, or if options contradict each other.
    """
    known = SOURCE_OPTIONS.select(options)
    kafka = KafkaOptions.of_source(options)
    min_offsets = int_option(known, "minOffsetsPerTrigger", minimum=1)
    max_offsets = int_option(known, "maxOffsetsPerTrigger", minimum=1)
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            f"minOffsetsPerTrigger ({min_offsets}) is greater than maxOffsetsPerTrigger "
            f"({max_offsets}): lower the minimum or raise the maximum"
        )
    return SourceOptions(
        connection=kafka.connection(),
        fetch=FetchOptions(
            isolation=kafka.isolation(),
            max_bytes=kafka.integer(
                "max.partition.fetch.bytes", default=4 * 1024 * 1024, minimum=1
            ),
            max_wait_s=kafka.integer("fetch.max.wait.ms", default=500, minimum=0) / 1000,
        ),
        subscription=_subscription(known),
        starting=starting_limit(known, streaming=streaming),
        ending=ending_limit(known, streaming=streaming),
        fail_on_data_loss=bool_option(known, "failOnDataLoss", default=True),
        columns=column_options(known),
        min_partitions=int_option(known, "minPartitions", minimum=1),
        max_records_per_partition=int_option(known, "maxRecordsPerPartition", minimum=1),
        max_offsets_per_trigger=max_offsets,
        max_bytes_per_trigger=bytes_option(known, "maxBytesPerTrigger"),
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_s=duration_option(known, "maxTriggerDelay", default="15m"),
        metadata_max_age_s=kafka.integer("metadata.max.age.ms", default=10_000, minimum=0) / 1000,
        filter_pushdown=_filter_pushdown(known),
        group_id=_group_id(known, streaming),
    )


def _filter_pushdown(options: Mapping[str, str]) -> bool:
    """Spark 4.3 keeps one plan per DataFrame: `PythonScanBuilder.pushFilters` stores the partitions
    of the last filtered read in the data source that all reads of the DataFrame share, and a read
    without filters does not ask the source again."""
    value = options.get("filterPushdown", "false").strip().lower()
    if value == FILTERED_READ_ONCE:
        return True
    if bool_option(options, "filterPushdown", default=False):
        raise OptionError(
            "filterPushdown=true is refused: Spark plans the reads of a DataFrame once, so the "
            "filters of one read would hide rows from the others. To read less, use assign, "
            "startingOffsets, startingTimestamp and endingTimestamp"
        )
    return False


def _subscription(options: Mapping[str, str]) -> Subscription:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(names) != 1:
        count = " and ".join(names) if names else "none of them"
        raise OptionError(
            "exactly one of the options subscribe, subscribePattern and assign is required, but "
            f"{count} is set"
        )
    if names == ["assign"]:
        return Assign(partition_set("assign", options["assign"]))
    if names == ["subscribePattern"]:
        return SubscribePattern(_pattern(options["subscribePattern"].strip()))
    topics = tuple(
        dict.fromkeys(topic.strip() for topic in options["subscribe"].split(",") if topic.strip())
    )
    if not topics:
        raise OptionError(
            "the option subscribe is empty: set it to one topic, or to several separated by "
            'commas, such as "orders,payments"'
        )
    return Subscribe(topics)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        if text:
            return re.compile(text)
    except re.error as error:
        raise OptionError(
            f"subscribePattern is {text!r}, which is not a valid regular expression: {error}"
        ) from error
    raise OptionError(
        "the option subscribePattern is empty: set it to a regular expression that matches full "
        'topic names, such as "orders-.*"'
    )


def _group_id(options: Mapping[str, str], streaming: bool) -> str | None:
    group_id = options.get("groupId")
    if group_id is not None and not streaming:
        raise OptionError(
            "groupId is for streaming queries, which commit their offsets to the group after each "
            "batch: remove it from this batch query"
        )
    if group_id is not None and not group_id.strip():
        raise OptionError(
            "the option groupId is empty: set it to the group that the query commits its offsets "
            "to, or remove it"
        )
    return group_id
