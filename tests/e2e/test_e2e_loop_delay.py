"""The event loop does not stall: sustained produce, a cold read, retention and the recovery of another log directory, all at once.

The bars are a delay of at most 20 ms at p99.9, and of 100 ms at worst, on a machine that is not busy otherwise:

    PENSTOCK_LOOP_DELAY_GB=5 pytest tests/e2e/test_e2e_loop_delay.py

is the full drill, and asks for them, of the time that the loop had (`own`): a wait for a core that another process has, or that the host of
a virtual machine has taken away (30 ms at p99.9 were seen on an idle one), is not the loop's doing. Both figures are told. Without the
variable the test takes seconds and may share its cores with other tests: it asks for what no healthy loop exceeds even so.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

GIGABYTES = float(os.environ.get("PENSTOCK_LOOP_DELAY_GB", "0"))
COLD_BYTES = int(GIGABYTES * 1e9) or 300_000_000
LOAD_S = 30.0 if GIGABYTES else 4.0
P999_MS, WORST_MS = (20, 100) if GIGABYTES else (200, 1_000)
RECOVERED_BYTES = 1_000_000_000
VALUE = os.urandom(1_000)
# Sustained, and below what two cores that also run the clients can take: a machine that is saturated delays every process on it.
LOAD_RECORDS_PER_S = 50_000
READ_BYTES_PER_S = 125_000_000
DEADLINE_S = 600.0


class Late(NamedTuple):
    p999_ms: float
    worst_ms: float
    line: str


def late(said: str) -> Late:
    found = re.search(r"p50 .* p99\.9 ([\d.]+) worst ([\d.]+) ms", said)
    assert found is not None, said
    return Late(float(found[1]), float(found[2]), found[0])


class DrilledNode:
    def __init__(self, directory: Path) -> None:
        self.data, self.other, self.log = directory / "data", directory / "other", directory / "log"
        settings = ["log.segment.bytes=67108864", "log.retention.check.interval.ms=1000", "log.segment.delete.delay.ms=1000"]
        # The node goes before its clients, and before other tests. Where that is not allowed, nice says so and goes on.
        command = ["nice", "-n", "-19", sys.executable, "-m", "tests.e2e.loop_delay_node", str(self.data), str(self.other), *settings]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.bootstrap = self.hear("ready ")

    def hear(self, word: str) -> str:
        output = _pipe(self.process.stdout)
        assert select.select([output], [], [], DEADLINE_S)[0], f"no {word!r} from the node"
        line = output.readline().decode()
        assert line.startswith(word), f"{line!r}; it said: {self.log.read_text()[-4000:]}"
        return line.removeprefix(word).strip()

    def recover(self) -> None:
        _pipe(self.process.stdin).write(b"\n")
        _pipe(self.process.stdin).flush()

    def stop(self) -> tuple[Late, Late]:
        """Of its loop: by the time of its own, and by the clock on the wall."""
        _pipe(self.process.stdin).close()
        own = late(self.hear("own "))
        assert self.process.wait(DEADLINE_S) == 0, self.log.read_text()[-4000:]
        return own, late(self.log.read_text().partition("loop delay since the start: ")[2])


def test_the_loop_is_never_late(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    node = DrilledNode(tmp_path)
    try:
        create_topics(node.bootstrap)
        fill(node.bootstrap, "kept", COLD_BYTES)
        node.stop()
        copy_uncleanly(node.data, node.other)
        make_cold(node.data.glob("kept-0/*.log"))
        node = DrilledNode(tmp_path)
        load = Load(node.bootstrap, "shed")
        node.recover()
        started = time.monotonic()
        read = read_all(node.bootstrap, "kept", COLD_BYTES)
        read_s = time.monotonic() - started
        recovered_s = float(node.hear("recovered "))
        load.wait(LOAD_S)
        produced = load.stop()
        segments = sorted(node.data.glob("shed-0/*.log"))
        own, wall = node.stop()
    finally:
        node.process.kill()
        node.process.wait()
    said = (
        f"{own.line} by the time of its own, {wall.line} by the clock on the wall; "
        f"read {read / 1e6:.0f} MB cold in {read_s:.1f} s, produced {produced / 1e6:.0f} MB, recovered in {recovered_s:.1f} s"
    )
    record_property("note", f"loop delay {said}")
    assert segments[0].name != "0" * 20 + ".log", "retention had nothing to do"
    assert own.p999_ms <= P999_MS, said
    assert own.worst_ms <= WORST_MS, said


def create_topics(bootstrap: str) -> None:
    shed = NewTopic("shed", 1, 1, config={"retention.bytes": "20000000", "segment.bytes": "10000000"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("kept", 1, 1), shed]).values():
        future.result(60)


def fill(bootstrap: str, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for _ in range(size // len(VALUE)):
        send(producer, topic)
    assert producer.flush(DEADLINE_S) == 0


def send(producer: Producer, topic: str) -> None:
    while True:
        try:
            return producer.produce(topic, VALUE)
        except BufferError:
            producer.poll(0.05)


def copy_uncleanly(data: Path, other: Path) -> None:
    """The first segments, as a crash leaves them: nothing says how far they were synced."""
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
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "drill", "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read, started = 0, time.monotonic()
    while read < size - size % len(VALUE) and time.monotonic() < started + DEADLINE_S:
        time.sleep(max(0.0, started + read / READ_BYTES_PER_S - time.monotonic()))
        messages: list[Any] = consumer.consume(10_000, timeout=1)
        assert all(message.error() is None for message in messages)
        read += sum(len(message) for message in messages)
    consumer.close()
    return read


class Load:
    """Produces from a thread until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "queue.buffering.max.messages": 20_000})
        self._topic = topic
        self._sent = 0
        self._started = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(max(0.0, self._started + self._sent / LOAD_RECORDS_PER_S - time.monotonic())):
            for _ in range(LOAD_RECORDS_PER_S // 100):
                send(self._producer, self._topic)
                self._sent += 1

    def wait(self, seconds: float) -> None:
        """Until it has run for so long."""
        self._stopping.wait(max(0.0, self._started + seconds - time.monotonic()))

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        return self._sent * len(VALUE)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="files cannot be made cold on this system")
