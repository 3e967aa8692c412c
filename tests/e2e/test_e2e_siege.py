"""A node under hostile clients of several kinds at once still serves another client.

PENSTOCK_SIEGE=1 (`make siege`) runs it at full size and measures: 10,000 idle connections, 1,000
half-sent requests, pipelined Metadata of 10,000 partitions, heartbeats with 30,000 topics. It needs
an otherwise idle machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.limits import (
    MAX_CACHED_METADATA_BYTES,
    MAX_NODE_INFLIGHT_BYTES,
    RESERVED_INFLIGHT_BYTES,
    SHORT_READ_BYTES,
)
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tests.e2e.penstock_process import PenstockProcess, first_line
from tests.e2e.raw_connection import RawConnection, create_topic, metadata, produce
from tests.e2e.test_e2e_connections import resident_bytes
from tests.log.making import batch

MEASURED = os.environ.get("PENSTOCK_SIEGE") == "1"
PARTITIONS_A_TOPIC = 500
PRODUCE_EVERY_S = 0.02
P99_S = 0.1
MEGABYTE = 1024 * 1024


class Size(NamedTuple):
    idle: int
    half_sent: int
    heartbeat_topics: int
    partitions: int
    seconds: float


SIZE = (
    Size(10_000, 1_000, 30_000, 10_000, 60.0) if MEASURED else Size(200, 1_000, 3_000, 1_000, 5.0)
)

# What a node may need above its memory before the siege: what connections hold, the part of their
# buffers that the bound does not cover, the cache of Metadata, and a tenth for the allocator.
MEMORY_BYTES = int(
    1.1
    * (
        MAX_NODE_INFLIGHT_BYTES // 4 * 5
        + RESERVED_INFLIGHT_BYTES
        + (SIZE.idle + SIZE.half_sent) * SHORT_READ_BYTES
        + MAX_CACHED_METADATA_BYTES
    )
)


@pytest.mark.more
def test_a_node_under_siege_serves_another_client(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with killed(tmp_path) as node, RawConnection(node.bootstrap) as client:
        assert create_topic(client, "served") == 0
        create_many(client)
        assert produce(client, "served", batch("first")).error_code == 0
        before = resident_bytes(node)
        with besieging(node) as ended:
            times, peak = produce_for(client, node, SIZE.seconds)
        done = ended()
        assert len(metadata(client).brokers) == 1
        broker_log = (node.directory / "stderr").read_text()
    assert "fenced" not in broker_log
    assert "heartbeat failed" not in broker_log
    assert done["idle opened"] == SIZE.idle
    assert not done.get("idle lost")
    assert done["half-sent requests"] >= SIZE.half_sent
    assert done["metadata responses"] > 0
    assert peak - before <= MEMORY_BYTES
    note = (
        f"{len(times)} produce requests: p50 {percentile(times, 50) * 1000:.1f} p99 "
        f"{percentile(times, 99) * 1000:.1f} worst {times[-1] * 1000:.1f} ms; memory "
        f"{before // MEGABYTE} MB before, {peak // MEGABYTE} MB at most (bound "
        f"{(before + MEMORY_BYTES) // MEGABYTE} MB); {json.dumps(done)}"
    )
    record_property("note", note)
    if MEASURED:
        assert percentile(times, 99) < P99_S, note


@contextmanager
def killed(directory: Path) -> Iterator[PenstockProcess]:
    """Run a node, and kill it in the end: it takes a minute to close 10,000 logs."""
    node = PenstockProcess(directory / "node")
    try:
        node.start()
        yield node
    finally:
        node.kill()


def create_many(client: RawConnection) -> None:
    topics = tuple(
        CreateTopicsRequest.Topic(
            name=f"many-{number}", num_partitions=PARTITIONS_A_TOPIC, replication_factor=1
        )
        for number in range(SIZE.partitions // PARTITIONS_A_TOPIC)
    )
    client.socket.settimeout(300)
    for topic in topics:
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=120_000)
        response = client.request(request, 5, CreateTopicsResponse)
        assert response.topics[0].error_code == 0, response.topics[0].error_message


@contextmanager
def besieging(node: PenstockProcess) -> Iterator[Callable[[], dict[str, int]]]:
    """Run `tests.e2e.siege`. The result returns what it did."""
    arguments = (SIZE.idle, SIZE.half_sent, SIZE.heartbeat_topics)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.siege", node.bootstrap, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    output: list[bytes] = []
    try:
        assert first_line(process, time.monotonic() + 300) == "ready"
        yield lambda: json.loads(output[0])
        output.append(process.communicate(timeout=120)[0])
    finally:
        process.kill()
        process.wait()


def produce_for(
    client: RawConnection, node: PenstockProcess, seconds: float
) -> tuple[list[float], int]:
    """Produce every 20 ms. Return the sorted times of the requests, each from when it was due, and
    the most memory of the node."""
    times, peak = [], 0
    start = due = time.monotonic()
    records = batch("x" * 500)
    while due < start + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        assert produce(client, "served", records).error_code == 0
        times.append(time.monotonic() - due)
        due += PRODUCE_EVERY_S
        if len(times) % 10 == 0:
            peak = max(peak, resident_bytes(node))
    return sorted(times), peak


def percentile(times: list[float], percent: float) -> float:
    return times[min(len(times) - 1, int(len(times) * percent / 100))]
