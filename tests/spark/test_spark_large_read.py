"""A topic far larger than what its readers may hold: read in batch, with the Python workers' memory
watched. PENSTOCK_DRILL=1 for 5 GB."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.spark.options import sink_options
from penstock.spark.sink.writer import write
from tests.e2e.penstock_process import PenstockProcess
from tests.spark.live import create_topics, session

# One after the other, in one process: Spark has enough to do.
pytestmark = pytest.mark.xdist_group("spark")

MB = 1_000_000
TOPIC_BYTES = (5_000 if os.environ.get("PENSTOCK_DRILL") else 200) * MB
VALUE_BYTES = 100
ROWS_A_PIECE = 100_000
PARTITIONS = 2
MOST_BYTES = 1_000 * MB
EVERY_S = 0.02


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    broker = PenstockProcess(tmp_path)
    broker.start()
    yield broker.bootstrap
    broker.kill()


class Memory:
    """The most that all of Spark's Python workers below this process had in memory, each at its
    worst."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.most_bytes = max(
                self.most_bytes, sum(_peak_bytes(worker) for worker in _workers(os.getpid()))
            )


def _workers(parent: int) -> Iterator[int]:
    with suppress(OSError):  # it may have ended meanwhile
        for task in Path(f"/proc/{parent}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"pyspark.daemon" in Path(f"/proc/{child}/cmdline").read_bytes():
                    yield int(child)
                yield from _workers(int(child))


def _peak_bytes(process: int) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
    return 0


def test_memory_stays_bounded(servers: str, record_property: Callable[[str, object], None]) -> None:
    create_topics(servers, PARTITIONS, "large")
    rows = fill(servers)
    frame = (
        session()
        .read.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "large")
        .load()
    )
    with Memory() as memory:
        (found,) = frame.selectExpr(
            "count(*) as rows", "sum(length(value)) as bytes", "max(offset) as last"
        ).collect()
    assert (found.rows, found.bytes, found.last) == (
        rows,
        rows * VALUE_BYTES,
        rows // PARTITIONS - 1,
    )
    assert 0 < memory.most_bytes < MOST_BYTES
    told = (
        f"{rows / 1e6:.0f} million rows of {rows * VALUE_BYTES // MB} MB read by Spark with "
        f"{memory.most_bytes // MB} MB of Python workers"
    )
    record_property("note", told)


def fill(servers: str) -> int:
    """The topic, of incompressible values, and how many rows it has."""
    values = os.urandom(VALUE_BYTES * ROWS_A_PIECE)
    column = pa.Array.from_buffers(
        pa.binary(VALUE_BYTES), ROWS_A_PIECE, [None, pa.py_buffer(values)]
    ).cast(pa.binary())
    turns = pa.array([number % PARTITIONS for number in range(ROWS_A_PIECE)], pa.int32())
    piece = pa.record_batch([column, turns], names=["value", "partition"])
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": "large",
        "kafka.compression.type": "none",
        "kafka.batch.size": "500000",
    }
    return write(sink_options(options), (piece for _ in range(TOPIC_BYTES // len(values)))).rows
