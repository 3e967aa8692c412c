"""The memory of Python workers is bounded while a batch query reads a large topic.

PENSTOCK_DRILL=1 reads 5 GB.
"""

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

# In one pytest-xdist worker, with the shared Spark session.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.more]

MB = 1_000_000
TOPIC_BYTES = (5_000 if os.environ.get("PENSTOCK_DRILL") else 200) * MB
VALUE_BYTES = 100
ROWS_PER_BATCH = 100_000
PARTITIONS = 2
MAX_WORKER_BYTES = 1_000 * MB
POLL_S = 0.02


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    broker = PenstockProcess(tmp_path)
    broker.start()
    yield broker.bootstrap
    broker.kill()


class Memory:
    """Measures the sum of the peak memory of all Python workers below this process."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            self.peak_bytes = max(
                self.peak_bytes, sum(_peak_bytes(worker) for worker in _workers(os.getpid()))
            )


def _workers(parent: int) -> Iterator[int]:
    with suppress(OSError):  # the process may have ended
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


def test_worker_memory_is_bounded(
    servers: str, record_property: Callable[[str, object], None]
) -> None:
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
        (result,) = frame.selectExpr(
            "count(*) as rows", "sum(length(value)) as bytes", "max(offset) as last"
        ).collect()
    assert (result.rows, result.bytes, result.last) == (
        rows,
        rows * VALUE_BYTES,
        rows // PARTITIONS - 1,
    )
    assert 0 < memory.peak_bytes < MAX_WORKER_BYTES
    note = (
        f"{rows / 1e6:.0f} million rows of {rows * VALUE_BYTES // MB} MB read by Spark with "
        f"{memory.peak_bytes // MB} MB of Python workers"
    )
    record_property("note", note)


def fill(servers: str) -> int:
    """Fill the topic with incompressible values. Return the number of rows."""
    values = os.urandom(VALUE_BYTES * ROWS_PER_BATCH)
    column = pa.Array.from_buffers(
        pa.binary(VALUE_BYTES), ROWS_PER_BATCH, [None, pa.py_buffer(values)]
    ).cast(pa.binary())
    partitions = pa.array([number % PARTITIONS for number in range(ROWS_PER_BATCH)], pa.int32())
    batch = pa.record_batch([column, partitions], names=["value", "partition"])
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": "large",
        "kafka.compression.type": "none",
        "kafka.batch.size": "500000",
    }
    return write(sink_options(options), (batch for _ in range(TOPIC_BYTES // len(values)))).rows
