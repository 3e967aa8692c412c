"""Streaming restarts: the driver is killed with -9 again and again, and so is the broker. Spark's
file sink has every row once, the topic every row at least once. PENSTOCK_DRILL=1 for ten kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.e2e.penstock_process import PenstockProcess
from tests.spark.live import create_topics, produce_numbers, session
from tests.spark.restart_job import ROWS_A_BATCH, SINK, SOURCE, checkpoint

# One after the other, in one process: Spark has enough to do.
pytestmark = pytest.mark.xdist_group("spark")

ROOT = Path(__file__).resolve().parents[2]
KILLS = 10 if os.environ.get("PENSTOCK_DRILL") else 2
PARTITIONS = 2
QUERIES = ("table", "topic")
# More batches than the job gets done before it is killed.
ROWS_A_LIFE = 30 * ROWS_A_BATCH
# Against hanging alone: on a busy machine Spark takes minutes to start.
TIMEOUT_S = 900.0


class Job:
    """The driver: Python and its Java, a process group of their own."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._command = [sys.executable, "-m", "tests.spark.restart_job", servers, str(directory)]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        with (self._directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                stdout=output,
                stderr=output,
                cwd=ROOT,
                start_new_session=True,
            )

    def wait(self, condition: Callable[[], bool]) -> None:
        """Looks often: a batch takes some hundred milliseconds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self._process is not None
            assert self._process.poll() is None, f"the job ended by itself:\n{self._said()}"
            assert time.monotonic() < deadline, f"nothing happens:\n{self._said()}"
            time.sleep(0.002)

    def wait_progress(self) -> None:
        """Until each query has done a batch more."""
        before = {query: len(done(self._directory, query)) for query in QUERIES}
        self.wait(
            lambda: all(
                len(done(self._directory, query)) > count for query, count in before.items()
            )
        )

    def wait_begun(self, query: str) -> None:
        self.wait(lambda: bool(begun(self._directory, query)))

    def finish(self) -> None:
        assert self._process is not None
        assert self._process.wait(TIMEOUT_S) == 0, self._said()

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _said(self) -> str:
        return (self._directory / "output").read_text(errors="replace")[-4000:]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PenstockProcess]:
    one = PenstockProcess(tmp_path / "broker")
    try:
        one.start()
        create_topics(one.bootstrap, PARTITIONS, SOURCE, SINK)
        yield one
    finally:
        one.kill()


@pytest.fixture
def job(broker: PenstockProcess, tmp_path: Path) -> Iterator[Job]:
    one = Job(broker.bootstrap, tmp_path)
    yield one
    one.kill()


def test_kill_9_of_drivers_and_brokers(
    broker: PenstockProcess,
    job: Job,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    rng = random.Random(6)
    kills = in_a_batch = produced = 0
    while kills < KILLS or in_a_batch < KILLS / 2:
        assert kills < 2 * KILLS, f"only {in_a_batch} of {kills} kills fell into a batch"
        produced = produce_numbers(broker.bootstrap, SOURCE, PARTITIONS, produced, ROWS_A_LIFE)
        job.start()
        job.wait_progress()
        if kills % 2:
            broker.kill()
            broker.start()
            time.sleep(rng.uniform(0, 2))
        else:
            job.wait_begun(QUERIES[kills // 2 % 2])
        job.kill()
        kills += 1
        in_a_batch += any(begun(tmp_path, query) for query in QUERIES)
    job.start("drain")
    job.finish()
    expected = {str(number) for number in range(produced)}
    assert Counter(
        row.value for row in session().read.parquet(str(tmp_path / "table")).collect()
    ) == Counter(expected)
    written = consume(broker.bootstrap, SINK)
    assert set(written) == expected
    record_property(
        "note",
        f"{kills} Spark drivers killed, {in_a_batch} of them within a batch, and {kills // 2} "
        "times the broker: "
        f"{produced} rows once in Parquet, in the topic {len(written) - produced} of them again",
    )


def numbers(directory: Path) -> set[int]:
    return (
        {int(one.name) for one in directory.iterdir() if one.name.isdecimal()}
        if directory.exists()
        else set()
    )


def done(directory: Path, query: str) -> set[int]:
    return numbers(checkpoint(directory, query) / "commits")


def begun(directory: Path, query: str) -> set[int]:
    """Batches with an offsets file and no commit file. Those that are done are looked up last: one
    may end meanwhile."""
    offsets = numbers(checkpoint(directory, query) / "offsets")
    return offsets - done(directory, query)


def consume(servers: str, topic: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[str] = []
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, timeout=10):
            if message.error() is None:
                found.append((message.value() or b"").decode())
            else:
                ended += 1
    consumer.close()
    return found
