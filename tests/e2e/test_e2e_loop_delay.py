"""The event loop does not stall during sustained produce, a cold read, retention and the recovery
of another log directory, all at the same time.

drilled_node.py has the bounds, and how to run the full drill.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.drilled_node import (
    DEADLINE_S,
    GIGABYTES,
    LOAD_S,
    VALUE,
    DrilledNode,
    Load,
    assert_within_bound,
    send,
)

COLD_BYTES = int(GIGABYTES * 1e9) or 300_000_000
RECOVERED_BYTES = 1_000_000_000
SETTINGS = (
    "log.segment.bytes=67108864",
    "log.retention.check.interval.ms=1000",
    "log.segment.delete.delay.ms=1000",
)
READ_BYTES_PER_S = 75_000_000


def test_the_loop_delay_stays_within_its_bound(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    node = DrilledNode(tmp_path, *SETTINGS)
    try:
        create_topics(node.bootstrap)
        fill(node.bootstrap, "kept", COLD_BYTES)
        node.stop()
        copy_uncleanly(node.data, node.other)
        make_cold(node.data.glob("kept-0/*.log"))
        node = DrilledNode(tmp_path, *SETTINGS)
        load = Load(node.bootstrap, "shed")
        node.recover()
        started = time.monotonic()
        read = read_all(node.bootstrap, "kept", COLD_BYTES)
        read_s = time.monotonic() - started
        recovered_s = float(node.read_line("recovered "))
        load.wait(LOAD_S)
        produced = load.stop()
        segments = sorted(node.data.glob("shed-0/*.log"))
        own, wall = node.stop()
    finally:
        node.process.kill()
        node.process.wait()
    report = (
        f"{own.line} by its own time, {wall.line} by wall clock; "
        f"read {read / 1e6:.0f} MB cold in {read_s:.1f} s, produced {produced / 1e6:.0f} MB, "
        f"recovered in {recovered_s:.1f} s"
    )
    record_property("note", f"loop delay {report}")
    assert segments[0].name != "0" * 20 + ".log", "retention had nothing to do"
    assert_within_bound(own, report)


def create_topics(bootstrap: str) -> None:
    shed = NewTopic(
        "shed", 1, 1, config={"retention.bytes": "20000000", "segment.bytes": "10000000"}
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("kept", 1, 1), shed]).values():
        future.result(60)


def fill(bootstrap: str, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for _ in range(size // len(VALUE)):
        send(producer, topic)
    assert producer.flush(DEADLINE_S) == 0


def copy_uncleanly(data: Path, other: Path) -> None:
    """Copy the first segments without checkpoints, as a crash leaves them."""
    (other / "kept-0").mkdir(parents=True)
    shutil.copy(data / "meta.properties", other)
    shutil.copy(data / "kept-0" / "partition.metadata", other / "kept-0")
    left = RECOVERED_BYTES
    for segment in sorted(data.glob("kept-0/*.log")):
        if left <= 0:
            break
        left -= segment.stat().st_size
        shutil.copy(segment, other / "kept-0")
    make_cold((other / "kept-0").glob("*.log"))


def make_cold(files: Any) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_all(bootstrap: str, topic: str, size: int) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "drill",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read, started = 0, time.monotonic()
    while read < size - size % len(VALUE) and time.monotonic() < started + DEADLINE_S:
        time.sleep(max(0.0, started + read / READ_BYTES_PER_S - time.monotonic()))
        messages: list[Any] = consumer.consume(10_000, timeout=1)
        assert all(message.error() is None for message in messages)
        read += sum(len(message) for message in messages)
    consumer.close()
    return read


pytestmark = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise"), reason="files cannot be made cold on this system"
)
