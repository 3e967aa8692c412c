"""confluent-kafka, which uses librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.client_under_test import DEADLINE_S, MAX_REQUEST_BYTES, Abilities, Got, Sent


class ConfluentClient:
    abilities = Abilities()

    def __init__(self, bootstrap_servers: str) -> None:
        self._where: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap_servers}

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = AdminClient(self._where)  # Must outlive the call.
        admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[
            topic
        ].result(DEADLINE_S)

    def topics(self) -> dict[str, int]:
        found = AdminClient(self._where).list_topics(timeout=DEADLINE_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def produce(
        self, topic: str, records: list[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        settings = {
            "acks": "all",
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "message.max.bytes": MAX_REQUEST_BYTES,
        }
        producer = Producer({**self._where, **settings})
        offsets = [-1] * len(records)
        failures: list[KafkaError] = []

        def keep_offset(number: int) -> Callable[[KafkaError | None, Any], None]:
            def delivered(error: KafkaError | None, message: Any) -> None:
                if error is None:
                    offsets[number] = message.offset()
                else:
                    failures.append(error)

            return delivered

        for number, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=keep_offset(number),
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,  # 0 means now.
            )
            producer.poll(0)
        left = producer.flush(DEADLINE_S)
        if left or failures:
            raise KafkaException(
                failures[0]
                if failures
                else KafkaError(KafkaError._TIMED_OUT, f"{left} records unacknowledged")
            )
        return offsets

    def read_all(self, topic: str, partitions: int, count: int) -> list[Got]:
        consumer = self._consumer()
        consumer.assign(
            [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
        )
        return _read(consumer, count)

    def read_from(self, topic: str, partition: int, offset: int, count: int) -> list[Got]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        _poll(consumer, 1)
        consumer.seek(TopicPartition(topic, partition, offset))
        return _read(consumer, count)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        found = consumer.offsets_for_times(
            [TopicPartition(topic, partition, timestamp_ms)], timeout=DEADLINE_S
        )[0]
        consumer.close()
        if found.error is not None:
            raise KafkaException(found.error)
        return None if found.offset < 0 else int(found.offset)

    def _consumer(self) -> Consumer:
        # librdkafka requires a group.id even if the consumer joins no group.
        return Consumer(
            {
                **self._where,
                "group.id": "assigned-only",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
            }
        )


def _read(consumer: Consumer, count: int) -> list[Got]:
    try:
        return _poll(consumer, count)
    finally:
        consumer.close()


def _poll(consumer: Consumer, count: int) -> list[Got]:
    """Return fewer records after the deadline; the test reports what is missing."""
    found: list[Got] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        found.append(_got(message))
    return found


def _got(message: Any) -> Got:
    headers = tuple(message.headers() or ())
    return Got(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )
