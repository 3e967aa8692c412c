"""A compacted topic: numbered updates of its keys, a scan from offset 0, and the progress of
compaction.

It knows a broker by its address and its log directory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.log.checkpoint import parse_offsets
from tests.e2e.penstock_process import PenstockProcess

KEYS = 1_000
SETTINGS = (
    "log.cleaner.backoff.ms=50",
    "log.segment.delete.delay.ms=100",
    "log.flush.offset.checkpoint.interval.ms=1000",
)
TOPIC = "table"
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "0",
}
DEADLINE_S = 120.0
PADDING = "." * 60


class Updates:
    """Sends numbered updates of random keys, and records the highest acknowledged number of each
    key."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.sent = 0
        self._rng = random.Random(1)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            key = b"key-%d" % self._rng.randrange(KEYS)
            self._produce(key, f"{self.sent}{PADDING}".encode())
            self.sent += 1

    def _produce(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(TOPIC, value, key, on_delivery=self._delivered)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.05)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.acknowledged[message.key()] = max(
            self.acknowledged.get(message.key(), -1), number_in(message.value())
        )

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0


def number_in(value: bytes) -> int:
    return int(value.rstrip(b"."))


def scan(bootstrap: str) -> list[tuple[int, bytes, int]]:
    """Return offset, key and number of every record up to the current end, read from offset 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "scan",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    partition = TopicPartition(TOPIC, 0, OFFSET_BEGINNING)
    found: list[tuple[int, bytes, int]] = []
    try:
        end = retried(lambda: consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10))[
            1
        ]
        consumer.assign([partition])
        deadline = time.monotonic() + DEADLINE_S
        # Compaction keeps the last record, because it is the newest of its key.
        while end and (not found or found[-1][0] < end - 1):
            assert time.monotonic() < deadline, f"read up to {found[-1:]} of {end}"
            messages: list[Any] = consumer.consume(10_000, timeout=1)
            found += [
                (message.offset(), message.key(), number_in(message.value()))
                for message in messages
                if message.error() is None
            ]
    finally:
        consumer.close()
    return found


def retried(ask: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return ask()
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def create(bootstrap: str, **settings: str) -> None:
    config = TOPIC_CONFIG | {name.replace("_", "."): value for name, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)]).values():
        future.result(60)


def data_of(broker: PenstockProcess) -> Path:
    return broker.directory / "data" / "1" / "data"


def clean_offset(data: Path, topic: str = TOPIC) -> int:
    """Return the clean offset of the topic's partition from the node's checkpoint."""
    checkpoint = data / "cleaner-offset-checkpoint"
    offsets = parse_offsets(checkpoint.read_bytes()) if checkpoint.exists() else {}
    return max(
        (offset for partition, offset in offsets.items() if partition.topic == topic), default=0
    )


def active_segment(data: Path, topic: str = TOPIC) -> int:
    """Return the base offset of the active segment."""
    return max(int(path.stem) for path in data.glob(f"{topic}-*/*.log"))


def wait_clean(data: Path, offset: int, topic: str = TOPIC) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while clean_offset(data, topic) < offset:
        assert time.monotonic() < deadline, (
            f"compacted up to {clean_offset(data, topic)}, not {offset}"
        )
        time.sleep(0.05)


def wait_settled(data: Path, topic: str = TOPIC) -> None:
    """Return when the clean offset has not changed for 1.5 s."""
    deadline, seen, since = time.monotonic() + DEADLINE_S, -1, time.monotonic()
    while time.monotonic() - since < 1.5:
        assert time.monotonic() < deadline
        if clean_offset(data, topic) != seen:
            seen, since = clean_offset(data, topic), time.monotonic()
        time.sleep(0.1)
