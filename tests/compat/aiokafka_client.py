"""aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

from tests.compat.client_under_test import DEADLINE_S, MAX_REQUEST_BYTES, Abilities, Got, Sent

T = TypeVar("T")


class AiokafkaClient:
    abilities = Abilities()

    def __init__(self, bootstrap_servers: str) -> None:
        self._where = bootstrap_servers

    def create_topic(self, topic: str, partitions: int) -> None:
        async def create(admin: AIOKafkaAdminClient) -> None:
            response = await admin.create_topics([NewTopic(topic, partitions, 1)])
            for _topic, code, message in response.topic_errors:
                if code:
                    raise for_code(code)(message)

        self._with_admin(create)

    def topics(self) -> dict[str, int]:
        async def ask(admin: AIOKafkaAdminClient) -> dict[str, int]:
            found = await admin.describe_topics()
            return {topic["topic"]: len(topic["partitions"]) for topic in found}

        return self._with_admin(ask)

    def produce(
        self, topic: str, records: list[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        async def send() -> list[int]:
            async with AIOKafkaProducer(
                bootstrap_servers=self._where,
                acks="all",
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                max_request_size=MAX_REQUEST_BYTES,
                linger_ms=5,
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        r.value,
                        r.key,
                        r.partition,
                        timestamp_ms=r.timestamp_ms,
                        headers=list(r.headers),
                    )
                    for r in records
                ]
                return [int((await future).offset) for future in futures]

        return asyncio.run(asyncio.wait_for(send(), DEADLINE_S))

    def read_all(self, topic: str, partitions: int, count: int) -> list[Got]:
        async def read(consumer: AIOKafkaConsumer) -> list[Got]:
            assigned = [TopicPartition(topic, partition) for partition in range(partitions)]
            consumer.assign(assigned)
            await consumer.seek_to_beginning(*assigned)
            return await _poll(consumer, count)

        return self._with_consumer(read)

    def read_from(self, topic: str, partition: int, offset: int, count: int) -> list[Got]:
        async def read(consumer: AIOKafkaConsumer) -> list[Got]:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            await consumer.seek_to_beginning(where)
            await _poll(consumer, 1)
            consumer.seek(where, offset)
            return await _poll(consumer, count)

        return self._with_consumer(read)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask(consumer: AIOKafkaConsumer) -> int | None:
            where = TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            return None if found is None else int(found.offset)

        return self._with_consumer(ask)

    def _with_admin(self, use: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def call() -> T:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._where)
            await admin.start()
            try:
                return await use(admin)
            finally:
                await admin.close()

        return asyncio.run(asyncio.wait_for(call(), DEADLINE_S))

    def _with_consumer(self, use: Callable[[AIOKafkaConsumer], Awaitable[T]]) -> T:
        async def call() -> T:
            async with AIOKafkaConsumer(
                bootstrap_servers=self._where, group_id=None, enable_auto_commit=False
            ) as consumer:
                return await use(consumer)

        return asyncio.run(asyncio.wait_for(call(), 2 * DEADLINE_S))


async def _poll(consumer: AIOKafkaConsumer, count: int) -> list[Got]:
    found: list[Got] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += [
                Got(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                for r in records
            ]
    return found
