"""Reads the topics, partitions and offsets that a plan needs from the cluster.

The resolution of startingOffsets and endingOffsets (`resolve_limit`) is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.client.client import Client
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import EARLIEST, LATEST, IsolationLevel
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.spark.options import OptionError, SourceOptions
from penstock.spark.options.offset_limits import OffsetLimit, SpecificOffsets, SpecificTimestamps
from penstock.spark.options.source import Assign, SubscribePattern, Subscription
from penstock.spark.source.data_loss import DataLoss
from penstock.spark.source.offsets import Snapshot

# ListOffsets returns this offset if no record has the timestamp or a later one.
NO_OFFSET = -1

_MAX_LISTED = 5


async def read_snapshot(client: Client, options: SourceOptions, *, allow_missing: bool) -> Snapshot:
    """Return the current offsets of the subscribed partitions.

    `allow_missing` leaves out topics that do not exist; the caller reports them as data loss.
    KafkaError for a missing topic otherwise.
    """
    topics = await _topics(client, options.subscription, allow_missing)
    partitions = _partitions(topics, options.subscription, allow_missing)
    isolation = options.fetch.isolation
    earliest = await list_offsets(client, dict.fromkeys(partitions, EARLIEST), isolation)
    latest = await list_offsets(client, dict.fromkeys(partitions, LATEST), isolation)
    return Snapshot({topic.name: topic.id for topic in topics}, earliest, latest)


async def read_limit(
    client: Client,
    limit: OffsetLimit,
    option: str,
    snapshot: Snapshot,
    isolation: IsolationLevel,
    *,
    starting: bool,
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """Resolve a limit to an offset per partition, with ListOffsets requests for timestamps."""
    by_timestamp = await list_offsets(client, limit_timestamps(limit, snapshot.latest), isolation)
    return resolve_limit(limit, option, snapshot, by_timestamp, starting=starting)


async def list_offsets(
    client: Client, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    """Return the first offset whose timestamp is equal or later; NO_OFFSET if there is none."""
    if not timestamps:
        return {}
    listed = await client.admin.list_offsets(timestamps, isolation)
    return {partition: result.offset for partition, result in listed.items()}


def limit_timestamps(
    limit: OffsetLimit, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the timestamps whose offsets `resolve_limit` needs."""
    if not isinstance(limit, SpecificTimestamps):
        return {}
    if isinstance(limit.timestamps, int):
        return dict.fromkeys(partitions, limit.timestamps)
    _check_complete(limit.option, limit.timestamps, partitions)
    return dict(limit.timestamps)


def resolve_limit(
    limit: OffsetLimit,
    option: str,
    snapshot: Snapshot,
    by_timestamp: Mapping[TopicPartition, int],
    *,
    starting: bool,
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """Resolve a limit to an offset per partition; offsets outside the log are data loss.

    `by_timestamp` has an offset, or NO_OFFSET, for every partition of `limit_timestamps`.
    """
    if isinstance(limit, SpecificTimestamps):
        return {
            partition: _by_timestamp(limit, partition, offset, snapshot, starting)
            for partition, offset in by_timestamp.items()
        }, []
    if isinstance(limit, SpecificOffsets):
        _check_complete(option, limit.offsets, snapshot.latest)
        return _within_log(option, limit.offsets, snapshot)
    return dict(snapshot.earliest if limit == EARLIEST else snapshot.latest), []


def _by_timestamp(
    limit: SpecificTimestamps,
    partition: TopicPartition,
    offset: int,
    snapshot: Snapshot,
    starting: bool,
) -> int:
    if offset != NO_OFFSET:
        return offset
    if starting and not limit.or_latest:
        raise OptionError(
            f"{limit.option}: {partition} has no record with that timestamp or a later one. Set "
            "startingOffsetsByTimestampStrategy to latest to start such partitions at their end, "
            "or set an earlier timestamp"
        )
    return snapshot.latest[partition]


def _within_log(
    option: str, offsets: Mapping[TopicPartition, int], snapshot: Snapshot
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    resolved: dict[TopicPartition, int] = {}
    losses = []
    for partition, value in offsets.items():
        earliest, latest = snapshot.earliest[partition], snapshot.latest[partition]
        offset = {EARLIEST: earliest, LATEST: latest}.get(value, value)
        resolved[partition] = min(max(offset, earliest), latest)
        if resolved[partition] != offset:
            start, end = sorted((offset, resolved[partition]))
            reason = (
                f"{option} is {offset}, but the log has offsets {earliest} to {latest} (exclusive)"
            )
            losses.append(DataLoss(partition, start, end, reason))
    return resolved, losses


def _check_complete(
    option: str, named: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    missing = sorted(set(partitions) - set(named))
    unknown = sorted(set(named) - set(partitions))
    if missing:
        raise OptionError(
            f"{option} does not include {_list(missing)}: include every partition of the query "
            "(-2 is earliest, -1 is latest)"
        )
    if unknown:
        raise OptionError(
            f"{option} includes {_list(unknown)}, which the query does not read: remove it"
        )


def _list(partitions: list[TopicPartition]) -> str:
    listed = ", ".join(map(str, partitions[:_MAX_LISTED]))
    remaining = len(partitions) - _MAX_LISTED
    return listed if remaining <= 0 else f"{listed} and {remaining} more"


async def _topics(
    client: Client, subscription: Subscription, allow_missing: bool
) -> list[TopicInfo]:
    if isinstance(subscription, SubscribePattern):
        return [
            topic
            for topic in await client.admin.describe_topics()
            if not topic.internal and subscription.pattern.fullmatch(topic.name)
        ]
    names = (
        sorted({partition.topic for partition in subscription.partitions})
        if isinstance(subscription, Assign)
        else list(subscription.topics)
    )
    try:
        return await client.cluster.retry(lambda: _named_topics(client, names, allow_missing))
    except KafkaError as error:
        if error.code not in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ):
            raise
        raise KafkaError(
            error.code, f"{error.message}: create it, or correct the option that names it"
        ) from error


async def _named_topics(client: Client, names: list[str], allow_missing: bool) -> list[TopicInfo]:
    try:
        return await client.cluster.topics(names)
    except KafkaError as error:
        if not allow_missing or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    return [topic for topic in await client.cluster.topics(None) if topic.name in names]


def _partitions(
    topics: list[TopicInfo], subscription: Subscription, allow_missing: bool
) -> list[TopicPartition]:
    existing = [
        TopicPartition(topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions
    ]
    if not isinstance(subscription, Assign):
        return existing
    missing = sorted(subscription.partitions - set(existing))
    if missing and not allow_missing:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"assign includes {', '.join(map(str, missing))}, which does not exist: correct the "
            "option, or add partitions to the topic",
        )
    return [partition for partition in existing if partition in subscription.partitions]
