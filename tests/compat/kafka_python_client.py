"""kafka-python, with the codecs whose optional libraries are installed."""

from __future__ import annotations

import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.codec import has_gzip, has_lz4, has_snappy, has_zstd

from tests.compat.client_under_test import (
    CODECS,
    DEADLINE_S,
    MAX_REQUEST_BYTES,
    Abilities,
    Got,
    Sent,
)

_HAS = {"gzip": has_gzip, "snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}
_CODECS = tuple(codec for codec in CODECS if _HAS[codec]())
_MISSING = [codec for codec in CODECS if codec not in _CODECS]


class KafkaPythonClient:
    abilities = Abilities(
        codecs=_CODECS,
        note=f"kafka-python has no library here for {', '.join(_MISSING)}: not tried with it"
        if _MISSING
        else "",
    )

    def __init__(self, bootstrap_servers: str) -> None:
        self._where = bootstrap_servers

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self._where)
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])
        finally:
            admin.close()

    def topics(self) -> dict[str, int]:
        admin = KafkaAdminClient(bootstrap_servers=self._where)
        try:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
        finally:
            admin.close()

    def produce(
        self, topic: str, records: list[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self._where,
            acks="all",
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=MAX_REQUEST_BYTES,
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    r.value,
                    r.key,
                    headers=list(r.headers),
                    partition=r.partition,
                    timestamp_ms=r.timestamp_ms,
                )
                for r in records
            ]
            return [int(future.get(DEADLINE_S).offset) for future in futures]
        finally:
            producer.close()

    def read_all(self, topic: str, partitions: int, count: int) -> list[Got]:
        consumer = self._consumer()
        assigned = [TopicPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        return _read(consumer, count)

    def read_from(self, topic: str, partition: int, offset: int, count: int) -> list[Got]:
        consumer = self._consumer()
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        _poll(consumer, 1)
        consumer.seek(where, offset)
        return _read(consumer, count)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        where = TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({where: timestamp_ms})[where]
        finally:
            consumer.close()
        return None if found is None else int(found.offset)

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(bootstrap_servers=self._where, group_id=None, enable_auto_commit=False)


def _read(consumer: KafkaConsumer, count: int) -> list[Got]:
    try:
        return _poll(consumer, count)
    finally:
        consumer.close()


def _poll(consumer: KafkaConsumer, count: int) -> list[Got]:
    found: list[Got] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=1000).values():
            found += [
                Got(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                for r in records
            ]
    return found
