"""A load of numbered records that never stops while brokers come and go, and reading all of it
back.

The producer is librdkafka's, with acks=all and idempotence: it retries by itself, and what it
reports as delivered must never be lost.
"""

from __future__ import annotations

import threading
import time
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

PARTITIONS = 3
DEADLINE_S = 120.0
_IN_FLIGHT = 20_000


class LoadError(Exception):
    """The load stopped moving; the text says where."""


class NumberedLoad:
    """Produces from a thread of its own, between `start` and `finish`. A record's value is its
    number; the partitions take turns."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._changed = threading.Condition()
        self._stopping = False
        self._failure: str | None = None
        self._sent = 0
        # Per partition, number at offset. The broker need not know the offset of a repeated batch
        # any more: those are not here.
        self.told: dict[int, dict[int, int]] = {partition: {} for partition in range(PARTITIONS)}
        self._count = 0
        self._thread = threading.Thread(target=self._run, name="load")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "queue.buffering.max.messages": _IN_FLIGHT,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def start(self, factor: int = 1, config: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(self._topic, PARTITIONS, factor, config=config or {})])[
            self._topic
        ].result(DEADLINE_S)
        self._thread.start()

    def wait_acknowledged(self, more: int) -> None:
        """Until this many more records are acknowledged than now."""
        with self._changed:
            wanted = self._count + more
            if not self._changed.wait_for(
                lambda: self._count >= wanted or self._failure is not None, DEADLINE_S
            ):
                raise LoadError(
                    f"{self._count} records acknowledged, {wanted} wanted, and no progress in "
                    f"{DEADLINE_S:.0f} s"
                )
            if self._failure is not None:
                raise LoadError(self._failure)

    def finish(self) -> int:
        """Stops producing, waits for the last answers and gives the number of records, all of them
        acknowledged."""
        self.abandon()
        left = self._producer.flush(DEADLINE_S)
        if left or self._failure is not None or self._count != self._sent:
            raise LoadError(
                f"{self._count} of {self._sent} records acknowledged, {left} unanswered: "
                f"{self._failure or 'no error'}"
            )
        return self._sent

    def abandon(self) -> None:
        """Stops producing, whatever becomes of what is on its way."""
        self._stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping and self._failure is None:
            try:
                self._producer.produce(
                    self._topic,
                    b"%d" % self._sent,
                    partition=self._sent % PARTITIONS,
                    on_delivery=self._delivered,
                )
                self._sent += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                self._fail(str(error))

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self._fail(f"a record was not delivered: {error}")
            return
        with self._changed:
            if message.offset() >= 0:
                self.told[message.partition()][message.offset()] = int(message.value())
            self._count += 1
            self._changed.notify_all()

    def _fail(self, text: str) -> None:
        with self._changed:
            self._failure = text
            self._changed.notify_all()


def check(load: NumberedLoad, sent: int, found: dict[int, list[tuple[int, int]]]) -> None:
    """All that was sent was acknowledged: so the log holds exactly that, in the order of sending,
    at the offsets that were told."""
    assert sum(map(len, found.values())) == sent
    for partition, records in found.items():
        assert [offset for offset, _number in records] == list(range(len(records)))
        assert [number for _offset, number in records] == list(range(partition, sent, PARTITIONS))
        assert load.told[partition].items() <= dict(records).items()


def read_back(bootstrap: str, topic: str, expected: int) -> dict[int, list[tuple[int, int]]]:
    """Offset and number of every record in the topic, per partition, as a fresh consumer sees them
    from the beginning to the end. It waits for as many as are expected (a broker that has just
    started may not lead yet), but neither stops at them nor insists."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "read-back",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer({**settings, "log_level": 0})
    found: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
    at_end: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    try:
        consumer.assign(
            [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
        )
        while (
            len(at_end) < PARTITIONS or sum(map(len, found.values())) < expected
        ) and time.monotonic() < deadline:
            messages: list[Any] = consumer.consume(10_000, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is None:
                    found[message.partition()].append((message.offset(), int(message.value())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()
