"""The topics and partitions that a query subscribes to, cached between triggers.

A trigger needs the offsets of the partitions, which change all the time. The partitions themselves
change rarely: they are fetched again when the cached ones are older than kafka.metadata.max.age.ms,
and when a broker reports an error for one of them.
"""

from __future__ import annotations

from penstock.client.client import Client
from penstock.client.metadata import TopicInfo
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.options.source import Assign, SubscribePattern, Subscription


class SubscribedTopics:
    """The topics of a subscription. Their partitions and leaders are in the client's metadata,
    which forgets a topic when one of its leaders refuses a request."""

    def __init__(self, subscription: Subscription, max_age_s: float) -> None:
        self._subscription = subscription
        self._max_age_s = max_age_s
        self._names: list[str] | None = None
        self._fetched_at = 0.0

    async def topics(
        self, client: Client, *, allow_missing: bool, refresh: bool = False
    ) -> list[TopicInfo]:
        """Return the existing topics of the subscription, from the cache unless `refresh`.

        KafkaError for a missing topic unless `allow_missing`.
        """
        cached = None if refresh else self._cached(client)
        if cached is not None:
            return cached
        fetched = await _fetch_topics(client, self._subscription, allow_missing)
        self._names = [topic.name for topic in fetched]
        self._fetched_at = client.cluster.world.clock.monotonic()
        return fetched

    def partitions(self, topics: list[TopicInfo], *, allow_missing: bool) -> list[TopicPartition]:
        """Return the subscribed partitions of the topics."""
        existing = [
            TopicPartition(topic.name, partition.index)
            for topic in topics
            for partition in topic.partitions
        ]
        if not isinstance(self._subscription, Assign):
            return existing
        missing = sorted(self._subscription.partitions - set(existing))
        if missing and not allow_missing:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"assign includes {', '.join(map(str, missing))}, which does not exist: correct "
                "the option, or add partitions to the topic",
            )
        return [partition for partition in existing if self._subscription.includes(partition)]

    def _cached(self, client: Client) -> list[TopicInfo] | None:
        age_s = client.cluster.world.clock.monotonic() - self._fetched_at
        if self._names is None or age_s >= self._max_age_s:
            return None
        topics = [
            topic
            for name in self._names
            if (topic := client.cluster.metadata.topics.get(name)) is not None
        ]
        return topics if len(topics) == len(self._names) else None


async def _fetch_topics(
    client: Client, subscription: Subscription, allow_missing: bool
) -> list[TopicInfo]:
    if isinstance(subscription, SubscribePattern):
        return [
            topic
            for topic in await client.admin.describe_topics()
            if not topic.internal
            and topic.name != DECISION_TOPIC
            and subscription.pattern.fullmatch(topic.name)
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
