"""A compacted topic under load: readers from the start always see the last value of every key, also after kill -9 at random points, and in
the end there is one record a key below the dirty tail.

    PENSTOCK_DRILL=1 pytest tests/e2e/test_e2e_compaction.py

is the full drill: a million updates of a thousand keys, and a hundred times kill -9.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.log.checkpoint import parse_offsets
from tests.e2e.penstock_process import PenstockProcess

DRILL = os.environ.get("PENSTOCK_DRILL") == "1"
KEYS = 1_000
UPDATES = 1_000_000 if DRILL else 120_000
KILLS = 100 if DRILL else 10
SETTINGS = ("log.cleaner.backoff.ms=50", "log.segment.delete.delay.ms=100", "log.flush.offset.checkpoint.interval.ms=1000")
TOPIC = "table"
TOPIC_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.2", "delete.retention.ms": "0"}
DEADLINE_S = 120.0
PADDING = "." * 60


class Updates:
    """Sends numbered updates of random keys, and knows the highest number of each key that was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.sent = 0
        self._chance = random.Random(1)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def send(self, count: int) -> None:
        for _ in range(count):
            key = b"key-%d" % self._chance.randrange(KEYS)
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
        self.acknowledged[message.key()] = max(self.acknowledged.get(message.key(), -1), number_in(message.value()))

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0


def number_in(value: bytes) -> int:
    return int(value.rstrip(b"."))


def scan(bootstrap: str) -> list[tuple[int, bytes, int]]:
    """Offset, key and number of every record that there is when it begins, read from the start."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "scan", "enable.auto.commit": False, "check.crcs": True})
    partition = TopicPartition(TOPIC, 0, OFFSET_BEGINNING)
    found: list[tuple[int, bytes, int]] = []
    try:
        end = retried(lambda: consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10))[1]
        consumer.assign([partition])
        deadline = time.monotonic() + DEADLINE_S
        # The last record is the newest of its key: it is there.
        while end and (not found or found[-1][0] < end - 1):
            assert time.monotonic() < deadline, f"read up to {found[-1:]} of {end}"
            messages: list[Any] = consumer.consume(10_000, timeout=1)
            found += [(one.offset(), one.key(), number_in(one.value())) for one in messages if one.error() is None]
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


def check_scan(bootstrap: str, acknowledged: dict[bytes, int]) -> int:
    """Nothing that was acknowledged before it began may be missing. Gives the number of records."""
    before = dict(acknowledged)
    found = scan(bootstrap)
    offsets = [offset for offset, _key, _number in found]
    assert offsets == sorted(set(offsets))
    table = {key: number for _offset, key, number in found}
    behind = {key: (number, table.get(key)) for key, number in before.items() if table.get(key, -1) < number}
    assert behind == {}, "acknowledged, and found"
    return len(found)


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_CONFIG)]).values():
        future.result(60)


def data_of(broker: PenstockProcess) -> Path:
    return broker.directory / "data" / "1" / "data"


def clean_offset(broker: PenstockProcess) -> int:
    checkpoint = data_of(broker) / "cleaner-offset-checkpoint"
    offsets = parse_offsets(checkpoint.read_bytes()) if checkpoint.exists() else {}
    return next((offset for partition, offset in offsets.items() if partition.topic == TOPIC), 0)


def wait_clean(broker: PenstockProcess, offset: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while clean_offset(broker) < offset:
        assert time.monotonic() < deadline, f"compacted up to {clean_offset(broker)}, not {offset}: {errors_of(broker)}"
        time.sleep(0.05)


def errors_of(broker: PenstockProcess) -> str:
    return (broker.directory / "stderr").read_text(errors="replace")[-2000:]


def last_sealed(broker: PenstockProcess) -> int:
    """Where the active segment begins."""
    return max(int(path.stem) for path in (data_of(broker) / f"{TOPIC}-0").glob("*.log"))


def test_many_updates_of_few_keys_end_in_few_records(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    broker = PenstockProcess(tmp_path / "node", *SETTINGS)
    try:
        broker.start()
        create(broker.bootstrap)
        updates = Updates(broker.bootstrap)
        stop = threading.Event()
        scans: list[int] = []
        failures: list[BaseException] = []
        reader = threading.Thread(target=_read_on, args=(broker.bootstrap, updates.acknowledged, stop, scans, failures))
        reader.start()
        try:
            updates.send(UPDATES)
            updates.flush()
            # What is dirty then is the active segment, and as much as the ratio allows.
            wait_clean(broker, last_sealed(broker) // 2)
        finally:
            stop.set()
            reader.join()
        assert failures == []
        assert scans
        _wait_settled(broker)
        found, clean = scan(broker.bootstrap), clean_offset(broker)
        assert {key: number for _offset, key, number in found} == updates.acknowledged
        below = Counter(key for offset, key, _number in found if offset < clean)
        assert set(below.values()) <= {1}
        tail = sum(offset >= clean for offset, _key, _number in found)
        assert len(found) - tail <= KEYS
        assert len(found) < UPDATES / 2
        check_dump(broker)
        broker.stop()
        note = f"{UPDATES} updates of {KEYS} keys: {len(below)} records and a dirty tail of {tail}, {len(scans)} scans meanwhile"
        record_property("note", f"compaction: {note}")
    finally:
        broker.kill()


def _read_on(
    bootstrap: str, acknowledged: dict[bytes, int], stop: threading.Event, scans: list[int], failures: list[BaseException]
) -> None:
    try:
        while not stop.is_set():
            scans.append(check_scan(bootstrap, acknowledged))
    except BaseException as error:  # noqa: BLE001 - told by the test itself
        failures.append(error)


def _wait_settled(broker: PenstockProcess) -> None:
    """Until nothing is due any more: the clean offset stands still for some rounds."""
    deadline, seen, since = time.monotonic() + DEADLINE_S, -1, time.monotonic()
    while time.monotonic() - since < 1.5:
        assert time.monotonic() < deadline
        if clean_offset(broker) != seen:
            seen, since = clean_offset(broker), time.monotonic()
        time.sleep(0.1)


def check_dump(broker: PenstockProcess) -> None:
    assert re.search(r"\d+ batches, \d+ records", dump(broker))


def dump(broker: PenstockProcess) -> str:
    """What `penstock log dump` (kafka-dump-log) says of the first segment."""
    segment = min((data_of(broker) / f"{TOPIC}-0").glob("*.log"))
    command = [str(Path(sys.executable).parent / "penstock"), "log", "dump", str(segment)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_kill_9_at_random_points_loses_no_last_value(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    broker = PenstockProcess(tmp_path / "node", *SETTINGS)
    chance = random.Random(KILLS)
    try:
        broker.start()
        create(broker.bootstrap)
        updates = Updates(broker.bootstrap)
        for _round in range(KILLS):
            updates.send(15_000)
            time.sleep(chance.random() * 0.3)
            broker.kill()
            broker.start()
            updates.flush()
            check_scan(broker.bootstrap, updates.acknowledged)
        _wait_settled(broker)
        assert clean_offset(broker) > 0
        found = scan(broker.bootstrap)
        assert {key: number for _offset, key, number in found} == updates.acknowledged
        below = [key for offset, key, _number in found if offset < clean_offset(broker)]
        assert len(below) == len(set(below))
        assert len(found) < updates.sent / 2
        broker.stop()
        record_property("note", f"compaction: {KILLS} times kill -9, {updates.sent} updates, {len(found)} records in the end")
    finally:
        broker.kill()


def test_keys_are_required_and_a_topics_codec_is_used(tmp_path: Path) -> None:
    broker = PenstockProcess(tmp_path / "node")
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"cleanup.policy": "compact", "compression.type": "zstd"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(60)
        failed: dict[str, int] = {}

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed[message.value().decode()] = error.code()

        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "gzip"})
        sent = [(b"a", "0"), (None, "1"), (b"b", "2" * 100_000), (b"c", "3")]
        for key, value in sent:
            producer.produce(TOPIC, value, key, on_delivery=delivered)
            assert producer.flush(DEADLINE_S) == 0
        assert failed == {"1": KafkaError.INVALID_RECORD}
        said = dump(broker)
        assert said.count("zstd") == 3
        assert "gzip" not in said
        broker.stop()
    finally:
        broker.kill()


pytestmark = pytest.mark.skipif(bool(os.environ.get("PENSTOCK_COMPAT_BOOTSTRAP")), reason="kills its broker")
