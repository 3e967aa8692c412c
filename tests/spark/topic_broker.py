"""A broker with topics, for tests of readers without Spark."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import penstock
from penstock.client.client import Client
from penstock.ids import TopicPartition
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import source_options
from penstock.spark.source.batch import plan
from penstock.spark.source.pushdown import FilterBounds
from penstock.spark.source.stream import StreamReader

T = TypeVar("T")
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
UNBOUNDED = FilterBounds()


class TopicBroker:
    """Creates topics whose records have timestamps one hour apart in each partition."""

    def __init__(self, servers: str, blocking: BlockingClient) -> None:
        self.servers = servers
        self._blocking = blocking

    def options(self, **options: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **options}

    def call(self, request: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(request)

    def create(self, topic: str, partitions: int, records: int = 10) -> str:
        self.call(lambda client: client.admin.create_topic(topic, partitions=partitions))
        for partition in range(partitions):
            self.produce(topic, partition, records)
        return topic

    def produce(
        self, topic: str, partition: int, records: int, *, timestamp: int = START_MS, size: int = 0
    ) -> None:
        """Produce values of at least `size` bytes."""

        async def send(client: Client) -> None:
            async with client.producer() as producer:
                for index in range(records):
                    value = f"{partition}/{index}".encode().ljust(size)
                    await producer.send(
                        topic, value, partition=partition, timestamp=timestamp + index * HOUR_MS
                    )

        self.call(send)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.call(
            lambda client: client.admin.delete_records({TopicPartition(topic, partition): before})
        )

    def plan(
        self, *, bounds: FilterBounds = UNBOUNDED, **options: str
    ) -> list[tuple[str, int, int, int]]:
        """Return topic, partition, start and end of each range."""
        parsed = source_options(self.options(**options), streaming=False)
        ranges = self.call(lambda client: plan(client, parsed, bounds))
        return [
            (planned.topic, planned.partition, planned.start, planned.end) for planned in ranges
        ]

    def stream(self, **options: str) -> StreamReader:
        return StreamReader(source_options(self.options(**options), streaming=True))


@contextmanager
def topic_broker() -> Iterator[TopicBroker]:
    with penstock.Cluster() as cluster:
        servers = cluster.bootstrap_servers
        options = source_options(
            {"kafka.bootstrap.servers": servers, "subscribe": "any"}, streaming=False
        )
        with BlockingClient(options.connection) as blocking:
            yield TopicBroker(servers, blocking)
