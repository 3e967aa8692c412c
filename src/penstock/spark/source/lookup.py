"""What a plan must know of the cluster: which topics and partitions there are, and where their logs
begin and end."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from penstock.client.client import Client
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import EARLIEST, LATEST, Isolation
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.spark.options import Assigned, Pattern, SourceOptions, Subscription
from penstock.spark.source.offsets import DataLoss, Snapshot
from penstock.spark.source.positions import Position
from penstock.spark.source.resolving import resolve, times_of


async def snapshot(client: Client, options: SourceOptions, *, may_be_gone: bool) -> Snapshot:
    """What is subscribed to, as it is now. `may_be_gone` leaves out topics that do not exist: the
    plan knows what to say of them."""
    topics = await _topics(client, options.subscription, may_be_gone)
    partitions = _partitions(topics, options.subscription, may_be_gone)
    ids: dict[str, UUID] = {topic.name: topic.id for topic in topics}
    earliest = await offsets_at(
        client, dict.fromkeys(partitions, EARLIEST), options.fetch.isolation
    )
    latest = await offsets_at(client, dict.fromkeys(partitions, LATEST), options.fetch.isolation)
    return Snapshot(ids, earliest, latest)


async def offsets_of(
    client: Client,
    position: Position,
    option: str,
    now: Snapshot,
    isolation: Isolation,
    *,
    starting: bool,
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """Where the options say that a read begins or ends."""
    found = await offsets_at(client, times_of(position, now.latest), isolation)
    return resolve(position, option, now, found, starting=starting)


async def offsets_at(
    client: Client, times: dict[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int]:
    """The first offset that is not older than a time; -1 where there is none."""
    if not times:
        return {}
    return {
        one: found.offset
        for one, found in (await client.admin.list_offsets(times, isolation)).items()
    }


async def _topics(client: Client, subscription: Subscription, may_be_gone: bool) -> list[TopicInfo]:
    if isinstance(subscription, Pattern):
        everything = await client.admin.describe_topics()
        return [
            one
            for one in everything
            if not one.internal and subscription.expression.fullmatch(one.name)
        ]
    names = (
        sorted({one.topic for one in subscription.partitions})
        if isinstance(subscription, Assigned)
        else list(subscription.names)
    )
    try:
        return await client.cluster.retry(lambda: _named(client, names, may_be_gone))
    except KafkaError as error:
        if error.code not in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ):
            raise
        raise KafkaError(
            error.code, f"{error.message}: create it, or correct the option that names it"
        ) from error


async def _named(client: Client, names: list[str], may_be_gone: bool) -> list[TopicInfo]:
    try:
        return await client.cluster.topics(names)
    except KafkaError as error:
        if not may_be_gone or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    return [one for one in await client.cluster.topics(None) if one.name in names]


def _partitions(
    topics: list[TopicInfo], subscription: Subscription, may_be_gone: bool
) -> list[TopicPartition]:
    existing = [
        TopicPartition(topic.name, one.index) for topic in topics for one in topic.partitions
    ]
    if not isinstance(subscription, Assigned):
        return existing
    _check_exist(subscription.partitions if not may_be_gone else (), existing)
    return [one for one in existing if one in subscription.partitions]


def _check_exist(asked: Collection[TopicPartition], existing: Collection[TopicPartition]) -> None:
    missing = sorted(set(asked) - set(existing))
    if missing:
        reason = (
            f"assign names {', '.join(map(str, missing))}, which does not exist: correct it, "
            "or give the topic more partitions"
        )
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
