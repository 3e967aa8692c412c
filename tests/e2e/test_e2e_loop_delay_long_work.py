"""The event loop does not stall while a log of many batches is truncated, while timestamps are
looked up in many cold segments, and while clients request the metadata of many partitions.

drilled_node.py has the bounds, and how to run the full drill: 200,000 batches, 50 segments and
10,000 partitions.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.config.topic import LogConfig
from penstock.ids import TopicPartition as LogPartition
from penstock.log.directory import LogDirectory
from penstock.log.store import LogStore
from penstock.records.build import build_batch
from penstock.world import World
from penstock.world.real import run
from tests.e2e.drilled_node import DEADLINE_S, GIGABYTES, LOAD_S, DrilledNode, assert_within_bound
from tests.e2e.test_e2e_loop_delay import make_cold

BATCHES, SEGMENTS, TOPICS, LOOKUPS = (200_000, 50, 100, 200) if GIGABYTES else (20_000, 10, 5, 20)
PARTITIONS_PER_TOPIC = 100
SEGMENT_BYTES = 1024 * 1024
# As long as a batch, so that every batch has an index entry.
VALUE = b"x" * 4_000
FIRST_MS = 1_700_000_000_000


def test_the_loop_delay_stays_within_its_bound_during_long_work(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    node = DrilledNode(tmp_path)
    try:
        create_topics(node.bootstrap)
        fill(node.bootstrap)
        node.stop()
        write_batches(node.data, node.other)
        make_cold(path for path in node.data.glob("timed-0/*") if path.is_file())
        node = DrilledNode(tmp_path)
        started = time.monotonic()
        node.truncate("deep", BATCHES - 1)
        looked_up = look_up(node.bootstrap)
        truncated_s = float(node.read_line("truncated "))
        described = describe(node.bootstrap, until=started + LOAD_S)
        segments = len(list(node.data.glob("timed-0/*.log")))
        own, wall = node.stop()
    finally:
        node.process.kill()
        node.process.wait()
    report = (
        f"{own.line} by its own time, {wall.line} by wall clock; truncated {BATCHES} batches in "
        f"{truncated_s:.1f} s, looked up {looked_up} timestamps in {segments} cold segments, "
        f"described {TOPICS * PARTITIONS_PER_TOPIC} partitions {described} times"
    )
    record_property("note", f"loop delay during long work {report}")
    assert segments >= SEGMENTS, report
    assert described > 0, report
    assert_within_bound(own, report)


def create_topics(bootstrap: str) -> None:
    timed = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1", "index.interval.bytes": "0"}
    topics = [NewTopic("timed", 1, 1, config=timed)]
    topics += [NewTopic(f"many-{number}", PARTITIONS_PER_TOPIC, 1) for number in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic in topics:
        for future in admin.create_topics([topic], operation_timeout=60).values():
            future.result(DEADLINE_S)


def fill(bootstrap: str) -> None:
    """Write one record per batch, with increasing timestamps."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for number in range(SEGMENTS * SEGMENT_BYTES // len(VALUE)):
        while True:
            try:
                producer.produce("timed", VALUE, timestamp=FIRST_MS + number)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(DEADLINE_S) == 0


def write_batches(data: Path, other: Path) -> None:
    """Write a log whose active segment has many batches of a producer, and close it cleanly."""
    other.mkdir()
    shutil.copy(data / "meta.properties", other)

    async def write(world: World) -> None:
        store = LogStore(world, [LogDirectory(str(other), UUID(int=1_000))])
        await store.open(lambda _partition: LogConfig())
        log = store.create(LogPartition("deep", 0), UUID(int=1_001), LogConfig())
        for number in range(BATCHES):
            record = (None, b"x" * 100, (), FIRST_MS)
            batch = build_batch(
                [record], producer_id=number % 100, producer_epoch=0, base_sequence=number // 100
            )
            log.append_as_leader(batch, 0)
        await store.close()

    run(write)


def look_up(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "drill"})
    count = SEGMENTS * SEGMENT_BYTES // len(VALUE)
    for number in range(LOOKUPS):
        offset = (number * 7919) % count
        [found] = consumer.offsets_for_times(
            [TopicPartition("timed", 0, FIRST_MS + offset)], timeout=DEADLINE_S
        )
        assert found.offset == offset
    consumer.close()
    return LOOKUPS


def describe(bootstrap: str, until: float) -> int:
    """Request the metadata of all topics again and again. Return how often."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for count in itertools.count(1):
        topics = admin.list_topics(timeout=DEADLINE_S).topics
        assert sum(len(topic.partitions) for topic in topics.values()) >= (
            TOPICS * PARTITIONS_PER_TOPIC
        )
        if time.monotonic() > until:
            return count
    raise AssertionError


pytestmark = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise"), reason="files cannot be made cold on this system"
)
