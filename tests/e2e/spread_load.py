"""A continuous load over many partitions: producers with acks=all, and a consumer group.

A record's value starts with its number. The load knows the offset of every acknowledged record, and
what the group has read.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

DEADLINE_S = 120.0


class LoadError(Exception):
    """A client call failed for good, or makes no progress."""


class SpreadLoad:
    """Produces `rate` records a second, after `start`. The records are numbered, and partitions are
    used in turn."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, value_bytes: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.rate = 1_000
        # Per partition, offset to number. A broker may no longer know the offset of a duplicate
        # batch; such records are only counted.
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.count = 0
        self.consumed: set[int] = set()
        self.sent = 0
        self._bootstrap = bootstrap
        self._padding = b" " * value_bytes
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._threads = [threading.Thread(target=self._produce)]
        self._threads += [threading.Thread(target=self._consume) for _ in range(2)]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 50_000,
                "log_level": 0,
            }
        )

    def __enter__(self) -> SpreadLoad:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def start(self, factor: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        topic = NewTopic(self.topic, self.partitions, factor, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[self.topic].result(DEADLINE_S)
        for thread in self._threads:
            thread.start()

    def produce_more(self, records: int) -> None:
        """Wait until this many more records are acknowledged."""
        target = self.count + records
        deadline = time.monotonic() + DEADLINE_S + records / self.rate
        while self.count < target:
            self.check()
            if time.monotonic() > deadline:
                raise LoadError(f"{self.count} records acknowledged, {target} expected")
            time.sleep(0.05)

    def check(self) -> None:
        if self._failure is not None:
            raise LoadError(self._failure)

    def finish(self) -> int:
        """Stop producing, wait until the group has read everything, and return the number of
        records."""
        self._stopping.set()
        self._threads[0].join()
        left = self._producer.flush(DEADLINE_S)
        self.check()
        if left or self.count != self.sent:
            raise LoadError(f"{self.count} of {self.sent} records acknowledged, {left} unanswered")
        for thread in self._threads[1:]:
            thread.join()
        self.check()
        return self.sent

    def _produce(self) -> None:
        started, first = time.monotonic(), self.sent
        rate = self.rate
        while not self._stopping.is_set() and self._failure is None:
            if rate != self.rate:
                started, first, rate = time.monotonic(), self.sent, self.rate
            if self.sent - first > (time.monotonic() - started) * rate:
                self._producer.poll(0.005)
                continue
            try:
                self._producer.produce(
                    self.topic,
                    b"%d" % self.sent + self._padding,
                    partition=self.sent % self.partitions,
                    on_delivery=self._delivered,
                )
                self.sent += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self._failure = f"a record was not delivered: {error}"
            return
        offset = message.offset()
        if offset is not None:
            self.acknowledged[message.partition()][offset] = int(message.value())
        self.count += 1

    def _consume(self) -> None:
        """Read as a member of a group until the producer has stopped and all records are read."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "spread",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic])
        deadline: float | None = None
        try:
            while self._failure is None:
                for message in consumer.consume(1_000, timeout=0.2):
                    error = message.error()
                    if error is None:
                        self.consumed.add(int(message.value() or b""))
                    elif not error.retriable() and error.code() != KafkaError._PARTITION_EOF:
                        self._failure = f"the consumer failed: {error}"
                if self._stopping.is_set() and not self._threads[0].is_alive():
                    deadline = deadline or time.monotonic() + DEADLINE_S
                    if len(self.consumed) >= self.sent:
                        return
                    if time.monotonic() > deadline:
                        self._failure = f"the group read {len(self.consumed)} of {self.sent}"
        finally:
            consumer.close()


def read_back(load: SpreadLoad, bootstrap: str) -> None:
    """Assert that the topic has exactly the records sent, at the acknowledged offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-back",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found: list[dict[int, int]] = [{} for _ in range(load.partitions)]
    deadline = time.monotonic() + DEADLINE_S
    try:
        consumer.assign(
            [
                TopicPartition(load.topic, partition, OFFSET_BEGINNING)
                for partition in range(load.partitions)
            ]
        )
        while sum(map(len, found)) < load.sent and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error() is None:
                    found[message.partition() or 0][message.offset() or 0] = int(
                        message.value() or b""
                    )
    finally:
        consumer.close()
    for partition, records in enumerate(found):
        assert list(records) == list(range(len(records)))
        assert list(records.values()) == list(range(partition, load.sent, load.partitions))
        assert load.acknowledged[partition].items() <= records.items()
