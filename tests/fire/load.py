"""A producer with acks=all and idempotence, a consumer beside it, and a check of the topic.

The producer is librdkafka's. A record that it reports as delivered must never be lost; a record of
which it gives up may be there once or not at all. The consumer's records must agree with what the
topic has at the end.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.fire.cluster import OUTSIDE, FireCluster, FireError
from tests.fire.network import Host

DEADLINE_S = 60.0
CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 3000,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
}


class Load:
    """Produces `rate` numbered records a second to a topic's partitions in turn, from `start` to
    `finish`."""

    def __init__(
        self,
        cluster: FireCluster,
        topic: str,
        *,
        partitions: int = 3,
        rate: int = 300,
        host: str = OUTSIDE,
        only: int | None = None,
        bootstrap: str | None = None,
        padding: int = 100,
        give_up_s: float = 300.0,
    ) -> None:
        """With `only`, all records go to one partition."""
        self.topic, self.partitions, self.rate = topic, partitions, rate
        self.sent = 0
        self.count = 0
        self.gave_up = 0
        self.last_delivery_s = time.monotonic()
        self.longest_pause_s = 0.0
        # Per partition, offset to number. The offset of a duplicate may be unknown.
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.delivered: set[int] = set()
        self.consumed: list[dict[int, int]] = [{} for _ in range(partitions)]
        self._cluster = cluster
        self._host: Host = cluster.network.hosts[host]
        self._bootstrap = bootstrap or cluster.bootstrap
        self._only, self._padding, self._give_up_s = only, b" " * padding, give_up_s
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), name=work.__name__)
            for work in (self._produce, self._consume)
        ]
        self._failure: BaseException | None = None

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_more(self, records: int, within_s: float = DEADLINE_S) -> float:
        """Wait until this many more records are acknowledged. Return the seconds it took."""
        started, target = time.monotonic(), self.count + records
        while self.count < target:
            self.raise_failure()
            if time.monotonic() - started > within_s:
                raise FireError(
                    f"{self.count} records of {self.topic} acknowledged, {target} expected within "
                    f"{within_s:.0f} s; {self._cluster.logs()}"
                )
            time.sleep(0.02)
        return time.monotonic() - started

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise FireError(f"a client of {self.topic} failed") from self._failure

    def finish(self) -> None:
        """Stop, wait for the records in flight, read the topic and check it."""
        self.__exit__()
        self.raise_failure()
        self.check(read_topic(self._cluster, self.topic, self.partitions))

    def check(self, found: list[dict[int, bytes]]) -> None:
        """Assert: nothing acknowledged is lost, nothing is there twice, order is kept, and each
        offset has one value."""
        for partition in range(self.partitions):
            numbers = {
                offset: int(value) for offset, value in found[partition].items() if value.strip()
            }
            for offset, number in self.acknowledged[partition].items():
                assert numbers.get(offset) == number, (
                    f"{self.topic}-{partition}: record {number} was acknowledged at offset "
                    f"{offset}, which has {numbers.get(offset)}"
                )
            for offset, number in self.consumed[partition].items():
                assert numbers.get(offset) == number, (
                    f"{self.topic}-{partition}: record {number} was read at offset {offset}, which "
                    f"has {numbers.get(offset)}"
                )
            order = sorted(numbers.items())
            wrong = [
                index for index in range(1, len(order)) if order[index - 1][1] >= order[index][1]
            ]
            assert not wrong, (
                f"{self.topic}-{partition}: out of order or twice, as offset and number: "
                f"{[order[max(0, index - 6) : index + 6] for index in wrong[:3]]}"
            )
        present = {int(value) for records in found for value in records.values()}
        lost = self.delivered - present
        assert not lost, f"{self.topic}: {len(lost)} acknowledged records are lost: {min(lost)}"

    def _guard(self, work: Any) -> None:
        try:
            self._host.enter()
            work()
        except BaseException as error:  # noqa: BLE001 - raised by wait_more and finish
            self._failure = error

    def _produce(self) -> None:
        producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "request.timeout.ms": 2000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "message.timeout.ms": int(self._give_up_s * 1000),
                "queue.buffering.max.messages": 20_000,
            }
        )
        started = time.monotonic()
        while not self._stopping.is_set() and self._failure is None:
            if self.sent > (time.monotonic() - started) * self.rate:
                producer.poll(0.005)
                continue
            partition = self.sent % self.partitions if self._only is None else self._only
            try:
                producer.produce(
                    self.topic,
                    b"%d" % self.sent + self._padding,
                    partition=partition,
                    on_delivery=self._delivered,
                )
                self.sent += 1
                producer.poll(0)
            except BufferError:
                producer.poll(0.1)
        left = producer.flush(DEADLINE_S)
        if left:
            raise FireError(f"{left} records of {self.topic} are unanswered")

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            if error.code() == KafkaError._MSG_TIMED_OUT or error.code() == KafkaError._PURGE_QUEUE:
                self.gave_up += 1
            elif self._failure is None:
                self._failure = FireError(f"a record was not delivered: {error}")
            return
        now = time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now - self.last_delivery_s)
        self.last_delivery_s = now
        number = int(message.value())
        offset = message.offset()
        if offset is not None:
            self.acknowledged[message.partition()][offset] = number
        self.delivered.add(number)
        self.count += 1

    def _consume(self) -> None:
        consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": self._bootstrap,
                "group.id": f"beside-{self.topic}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 200,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
            }
        )
        try:
            consumer.assign(_from_start(self.topic, self.partitions))
            while not self._stopping.is_set():
                for message in consumer.consume(1_000, timeout=0.2):
                    error = message.error()
                    if error is None:
                        self._read(message)
                    elif not error.retriable():
                        raise FireError(f"the consumer failed: {error}")
        finally:
            consumer.close()

    def _read(self, message: Any) -> None:
        number, records = int(message.value()), self.consumed[message.partition()]
        known = records.setdefault(message.offset(), number)
        assert known == number, f"offset {message.offset()} was read as {known} and as {number}"


def read_topic(
    cluster: FireCluster,
    topic: str,
    partitions: int,
    *,
    committed: bool = False,
    within_s: float = DEADLINE_S,
) -> list[dict[int, bytes]]:
    """Return what a new consumer reads of the topic up to its end: per partition, offset to
    value."""
    found, at_end = read_what_is_there(
        cluster, topic, partitions, committed=committed, within_s=within_s
    )
    if len(at_end) < partitions:
        raise FireError(
            f"partitions {sorted(set(range(partitions)) - at_end)} of {topic} cannot be read to "
            f"their end within {within_s:.0f} s; {cluster.logs()}"
        )
    return found


def read_what_is_there(
    cluster: FireCluster, topic: str, partitions: int, *, committed: bool, within_s: float
) -> tuple[list[dict[int, bytes]], set[int]]:
    """Return what could be read in time, and the partitions that were read to their end. A batch
    whose CRC is wrong ends the reading of its partition."""
    return cluster.network.hosts[OUTSIDE].run(
        lambda: _read_topic(
            cluster.bootstrap, topic, partitions, committed=committed, within_s=within_s
        )
    )


def _read_topic(
    bootstrap: str, topic: str, partitions: int, *, committed: bool, within_s: float
) -> tuple[list[dict[int, bytes]], set[int]]:
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "read-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    found: list[dict[int, bytes]] = [{} for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = time.monotonic() + within_s
    try:
        consumer.assign(_from_start(topic, partitions))
        while len(at_end) < partitions and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    found[message.partition() or 0][message.offset() or 0] = message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition() or 0)
                elif not error.retriable() and error.code() != KafkaError._BAD_MSG:
                    raise FireError(f"{topic} cannot be read: {error}")
        return found, at_end
    finally:
        consumer.close()


def _from_start(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
