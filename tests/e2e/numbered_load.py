"""A continuous load of numbered records, and a consumer that reads all of them back.

The producer is librdkafka's, with acks=all and idempotence. It retries while brokers restart. A
record that it reports as delivered must never be lost.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
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
    """The load makes no progress, or a record was not delivered."""


class NumberedLoad:
    """Produces in a thread, between `start` and `finish`. The value of a record is its number;
    partitions are used in turn. Leaving the context stops the thread.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._changed = threading.Condition()
        self._stopping = False
        self._failure: str | None = None
        self._sent = 0
        # Per partition, offset to number. A broker may no longer know the offset of a duplicate
        # batch; such records are not in here.
        self.acknowledged: dict[int, dict[int, int]] = {
            partition: {} for partition in range(PARTITIONS)
        }
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

    def __enter__(self) -> NumberedLoad:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, factor: int = 1, config: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(self._topic, PARTITIONS, factor, config=config or {})])[
            self._topic
        ].result(DEADLINE_S)
        self._thread.start()

    def wait_acknowledged(self, more: int) -> None:
        """Return when this many more records are acknowledged."""
        with self._changed:
            target = self._count + more
            if not self._changed.wait_for(
                lambda: self._count >= target or self._failure is not None, DEADLINE_S
            ):
                raise LoadError(
                    f"{self._count} records acknowledged, {target} expected, no progress in "
                    f"{DEADLINE_S:.0f} s"
                )
            if self._failure is not None:
                raise LoadError(self._failure)

    def finish(self) -> int:
        """Stop producing and return the number of records, all of which are acknowledged."""
        self.stop()
        left = self._producer.flush(DEADLINE_S)
        if left or self._failure is not None or self._count != self._sent:
            raise LoadError(
                f"{self._count} of {self._sent} records acknowledged, {left} unanswered: "
                f"{self._failure or 'no error'}"
            )
        return self._sent

    def stop(self) -> None:
        """Stop producing. Records in flight may or may not be delivered."""
        self._stopping = True
        if self._thread.ident is not None:
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
            offset = message.offset()
            if offset is not None:
                self.acknowledged[message.partition()][offset] = int(message.value())
            self._count += 1
            self._changed.notify_all()

    def _fail(self, text: str) -> None:
        with self._changed:
            self._failure = text
            self._changed.notify_all()


def check(load: NumberedLoad, sent: int, found: dict[int, list[tuple[int, int]]]) -> None:
    """Assert that the log has exactly the records sent, in order, at the acknowledged offsets."""
    assert sum(map(len, found.values())) == sent
    for partition, records in found.items():
        assert [offset for offset, _number in records] == list(range(len(records)))
        assert [number for _offset, number in records] == list(range(partition, sent, PARTITIONS))
        assert load.acknowledged[partition].items() <= dict(records).items()


def read_back(bootstrap: str, topic: str, expected: int) -> dict[int, list[tuple[int, int]]]:
    """Return offset and number of every record in the topic, per partition, read from offset 0.

    Waits until `expected` records are read, because a broker that has just started may not lead
    yet. More records are returned too; fewer after the deadline.
    """
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
