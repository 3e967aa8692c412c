"""A node that reports its loop delay, load for it, and the bounds: 20 ms at p99.9 and 100 ms at
worst, on an otherwise idle machine.

    PENSTOCK_LOOP_DELAY_GB=5 pytest tests/e2e/test_e2e_loop_delay*.py

runs the full drill with these bounds. They apply to the loop's own time (`own`), without waits for
a core that another process has or that the hypervisor took away (up to 30 ms at p99.9 on an idle
virtual machine). Both figures are reported. Without the variable the tests take seconds, share
their cores with others, and have bounds that a healthy loop never exceeds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, NamedTuple

from confluent_kafka import Producer

GIGABYTES = float(os.environ.get("PENSTOCK_LOOP_DELAY_GB", "0"))
LOAD_S = 30.0 if GIGABYTES else 4.0
P999_MS, WORST_MS = (20, 100) if GIGABYTES else (200, 1_000)
VALUE = os.urandom(1_000)
# Below what two cores can sustain that also run the clients: a saturated machine delays every
# process.
LOAD_RECORDS_PER_S = 20_000
DEADLINE_S = 600.0


class LoopDelayReport(NamedTuple):
    p999_ms: float
    worst_ms: float
    line: str


def parse_report(text: str) -> LoopDelayReport:
    found = re.search(r"p50 .* p99\.9 ([\d.]+) worst ([\d.]+) ms", text)
    assert found is not None, text
    return LoopDelayReport(float(found[1]), float(found[2]), found[0])


class DrilledNode:
    def __init__(self, directory: Path, *settings: str) -> None:
        self.data, self.other, self.log = directory / "data", directory / "other", directory / "log"
        # The node has priority over its clients and other tests. Where that is not permitted, nice
        # prints a warning and runs it all the same.
        command = [
            "nice",
            "-n",
            "-19",
            sys.executable,
            "-m",
            "tests.e2e.loop_delay_node",
            str(self.data),
            str(self.other),
            *settings,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.bootstrap = self.read_line("ready ")

    def read_line(self, word: str) -> str:
        output = _pipe(self.process.stdout)
        assert wait([output.fileno()], DEADLINE_S), f"no {word!r} from the node"
        line = output.readline().decode()
        assert line.startswith(word), f"{line!r}; its log ends with: {self.log.read_text()[-4000:]}"
        return line.removeprefix(word).strip()

    def recover(self) -> None:
        self._command("")

    def truncate(self, topic: str, offset: int) -> None:
        """Truncate a log of the other directory."""
        self._command(f"{topic} {offset}")

    def _command(self, line: str) -> None:
        _pipe(self.process.stdin).write(line.encode() + b"\n")
        _pipe(self.process.stdin).flush()

    def stop(self) -> tuple[LoopDelayReport, LoopDelayReport]:
        """Stop the node and return its loop delay by the loop's own time and by wall clock."""
        _pipe(self.process.stdin).close()
        own = parse_report(self.read_line("own "))
        assert self.process.wait(DEADLINE_S) == 0, self.log.read_text()[-4000:]
        return own, parse_report(self.log.read_text().partition("loop delay since the start: ")[2])


def assert_within_bound(own: LoopDelayReport, report: str) -> None:
    assert own.p999_ms <= P999_MS, report
    assert own.worst_ms <= WORST_MS, report


def send(producer: Producer, topic: str, key: bytes | None = None) -> None:
    while True:
        try:
            return producer.produce(topic, VALUE, key)
        except BufferError:
            producer.poll(0.05)


class Load:
    """Produces in a thread until it is stopped."""

    def __init__(
        self, bootstrap: str, topic: str, *, per_second: int = LOAD_RECORDS_PER_S, keys: int = 0
    ) -> None:
        """Records have no key, or one of `keys` different keys."""
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 1, "queue.buffering.max.messages": 20_000}
        )
        self._topic, self._per_second, self._keys = topic, per_second, keys
        self._sent = 0
        self._started = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(
            max(0.0, self._started + self._sent / self._per_second - time.monotonic())
        ):
            for _ in range(self._per_second // 100):
                send(
                    self._producer,
                    self._topic,
                    b"key-%d" % (self._sent % self._keys) if self._keys else None,
                )
                self._sent += 1

    def wait(self, seconds: float) -> None:
        """Return when the load has run for this long."""
        self._stopping.wait(max(0.0, self._started + seconds - time.monotonic()))

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        return self._sent * len(VALUE)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
