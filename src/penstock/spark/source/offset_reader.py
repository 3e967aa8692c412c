"""Reads the offsets that a plan needs from the cluster.

The resolution of startingOffsets and endingOffsets (`resolve_limit`) is pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from penstock.client.client import Client
from penstock.client.offsets import EARLIEST, LATEST, IsolationLevel
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.spark.options import OptionError, SourceOptions
from penstock.spark.options.offset_limits import (
    OffsetLimit,
    RelativeTime,
    SpecificOffsets,
    SpecificTimestamps,
)
from penstock.spark.source.data_loss import DataLoss
from penstock.spark.source.offsets import Snapshot
from penstock.spark.source.subscription import SubscribedTopics

# ListOffsets returns this offset if no record has the timestamp or a later one.
NO_OFFSET = -1

_MAX_LISTED = 5


async def read_snapshot(
    client: Client,
    options: SourceOptions,
    *,
    allow_missing: bool,
    topics: SubscribedTopics | None = None,
    refresh: bool = False,
    isolation: IsolationLevel | None = None,
) -> Snapshot:
    """Return the current offsets of the subscribed partitions, with the isolation level of the
    options by default. `topics` caches the partitions, and `refresh` fetches them again.

    `allow_missing` leaves out topics that do not exist; the caller reports them as data loss.
    KafkaError for a missing topic otherwise.
    """
    subscribed = topics or SubscribedTopics(options.subscription, 0)
    level = options.fetch.isolation if isolation is None else isolation
    try:
        return await _snapshot(client, subscribed, level, allow_missing, refresh=refresh)
    except KafkaError as error:
        # A topic may have been deleted since the cached partitions were fetched.
        if topics is None or refresh or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    return await _snapshot(client, subscribed, level, allow_missing, refresh=True)


async def _snapshot(
    client: Client,
    subscribed: SubscribedTopics,
    isolation: IsolationLevel,
    allow_missing: bool,
    *,
    refresh: bool,
) -> Snapshot:
    topics = await subscribed.topics(client, allow_missing=allow_missing, refresh=refresh)
    partitions = subscribed.partitions(topics, allow_missing=allow_missing)
    earliest, latest = await asyncio.gather(
        list_offsets(client, dict.fromkeys(partitions, EARLIEST), isolation),
        list_offsets(client, dict.fromkeys(partitions, LATEST), isolation),
    )
    # From the metadata of now: a leader error may have shown that a topic was recreated.
    known = client.cluster.metadata.topics
    topic_ids = {topic.name: known.get(topic.name, topic).id for topic in topics}
    return Snapshot(topic_ids, earliest, latest)


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
    if isinstance(limit, RelativeTime):
        limit = limit.at(client.cluster.world.clock.now_ms())
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
