"""A compacted topic under load: a consumer from offset 0 always sees the last value of every key,
also after kill -9 at random points, and finally there is one record per key below the dirty tail.

    PENSTOCK_DRILL=1 pytest tests/e2e/test_e2e_compaction.py

runs the full drill: a million updates of a thousand keys, and a hundred times kill -9.
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
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.compacted_topic import (
    DEADLINE_S,
    KEYS,
    SETTINGS,
    TOPIC,
    Updates,
    active_segment,
    clean_offset,
    create,
    data_of,
    scan,
    wait_clean,
    wait_settled,
)
from tests.e2e.penstock_process import PenstockProcess

DRILL = os.environ.get("PENSTOCK_DRILL") == "1"
UPDATES = 1_000_000 if DRILL else 120_000
KILLS = 100 if DRILL else 10


def check_scan(bootstrap: str, acknowledged: dict[bytes, int]) -> int:
    """Assert that a scan has everything that was acknowledged before it began. Return the number
    of records."""
    before = dict(acknowledged)
    found = scan(bootstrap)
    offsets = [offset for offset, _key, _number in found]
    assert offsets == sorted(set(offsets))
    table = {key: number for _offset, key, number in found}
    behind = {
        key: (number, table.get(key))
        for key, number in before.items()
        if table.get(key, -1) < number
    }
    assert behind == {}, "acknowledged and read values of keys"
    return len(found)


def test_compaction_keeps_one_record_per_key(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    broker = PenstockProcess(tmp_path / "node", *SETTINGS)
    try:
        broker.start()
        create(broker.bootstrap)
        updates = Updates(broker.bootstrap)
        stop = threading.Event()
        scans: list[int] = []
        failures: list[BaseException] = []
        reader = threading.Thread(
            target=_scan_until, args=(broker.bootstrap, updates.acknowledged, stop, scans, failures)
        )
        reader.start()
        try:
            updates.send(UPDATES)
            updates.flush()
            # Dirty are the active segment, and as much as the dirty ratio allows.
            wait_clean(data_of(broker), active_segment(data_of(broker)) // 2)
        finally:
            stop.set()
            reader.join()
        assert failures == []
        assert scans
        wait_settled(data_of(broker))
        found, clean = scan(broker.bootstrap), clean_offset(data_of(broker))
        assert {key: number for _offset, key, number in found} == updates.acknowledged
        below = Counter(key for offset, key, _number in found if offset < clean)
        assert set(below.values()) <= {1}
        tail = sum(offset >= clean for offset, _key, _number in found)
        assert len(found) - tail <= KEYS
        assert len(found) < UPDATES / 2
        check_dump(broker)
        broker.stop()
        note = (
            f"{UPDATES} updates of {KEYS} keys: {len(below)} records and a dirty tail of "
            f"{tail}, {len(scans)} scans meanwhile"
        )
        record_property("note", f"compaction: {note}")
    finally:
        broker.kill()


def _scan_until(
    bootstrap: str,
    acknowledged: dict[bytes, int],
    stop: threading.Event,
    scans: list[int],
    failures: list[BaseException],
) -> None:
    try:
        while not stop.is_set():
            scans.append(check_scan(bootstrap, acknowledged))
    except BaseException as error:  # noqa: BLE001 - the test reports it
        failures.append(error)


def check_dump(broker: PenstockProcess) -> None:
    assert re.search(r"\d+ batches, \d+ records", dump(broker))


def dump(broker: PenstockProcess) -> str:
    """Return the output of `penstock log dump` for the first segment."""
    segment = min((data_of(broker) / f"{TOPIC}-0").glob("*.log"))
    command = [str(Path(sys.executable).parent / "penstock"), "log", "dump", str(segment)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_kill_9_at_random_points_loses_no_last_value(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    broker = PenstockProcess(tmp_path / "node", *SETTINGS)
    rng = random.Random(KILLS)
    try:
        broker.start()
        create(broker.bootstrap)
        updates = Updates(broker.bootstrap)
        for _round in range(KILLS):
            updates.send(15_000)
            time.sleep(rng.random() * 0.3)
            broker.kill()
            broker.start()
            updates.flush()
            check_scan(broker.bootstrap, updates.acknowledged)
        wait_settled(data_of(broker))
        assert clean_offset(data_of(broker)) > 0
        found = scan(broker.bootstrap)
        assert {key: number for _offset, key, number in found} == updates.acknowledged
        below = [key for offset, key, _number in found if offset < clean_offset(data_of(broker))]
        assert len(below) == len(set(below))
        assert len(found) < updates.sent / 2
        broker.stop()
        record_property(
            "note",
            f"compaction: {KILLS} times kill -9, {updates.sent} updates, {len(found)} records left",
        )
    finally:
        broker.kill()


def test_records_need_keys_and_the_topics_codec_is_used(tmp_path: Path) -> None:
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
        output = dump(broker)
        assert output.count("zstd") == 3
        assert "gzip" not in output
        broker.stop()
    finally:
        broker.kill()


pytestmark = pytest.mark.skipif(
    bool(os.environ.get("PENSTOCK_COMPAT_BOOTSTRAP")), reason="kills its broker"
)
