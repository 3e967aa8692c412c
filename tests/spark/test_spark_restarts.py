"""Streaming restarts: SIGKILL of drivers and brokers. Spark's file sink has every row exactly once,
the topic every row at least once.

PENSTOCK_DRILL=1 kills ten times.
"""

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
from tests.spark.restart_job import ROWS_PER_BATCH, SINK, SOURCE, checkpoint

# In one pytest-xdist worker, with the shared Spark session.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.more]

ROOT = Path(__file__).resolve().parents[2]
KILLS = 10 if os.environ.get("PENSTOCK_DRILL") else 2
PARTITIONS = 2
QUERIES = ("table", "topic")
# More batches than a job finishes before it is killed.
ROWS_PER_JOB = 30 * ROWS_PER_BATCH
# Only against hanging: Spark can take minutes to start on a busy machine.
TIMEOUT_S = 900.0


class Job:
    """The driver process with its JVM, in its own process group."""

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
        """Wait for a condition. Polls often, since a batch takes only some hundred milliseconds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self._process is not None
            assert self._process.poll() is None, f"the job ended unexpectedly:\n{self._log()}"
            assert time.monotonic() < deadline, (
                f"the condition did not hold in time:\n{self._log()}"
            )
            time.sleep(0.002)

    def wait_progress(self) -> None:
        """Wait until each query has committed another batch."""
        before = {query: len(committed(self._directory, query)) for query in QUERIES}
        self.wait(
            lambda: all(
                len(committed(self._directory, query)) > count for query, count in before.items()
            )
        )

    def wait_for_batch(self, query: str) -> None:
        self.wait(lambda: bool(running_batches(self._directory, query)))

    def finish(self) -> None:
        assert self._process is not None
        assert self._process.wait(TIMEOUT_S) == 0, self._log()

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _log(self) -> str:
        return (self._directory / "output").read_text(errors="replace")[-4000:]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PenstockProcess]:
    process = PenstockProcess(tmp_path / "broker")
    try:
        process.start()
        create_topics(process.bootstrap, PARTITIONS, SOURCE, SINK)
        yield process
    finally:
        process.kill()


@pytest.fixture
def job(broker: PenstockProcess, tmp_path: Path) -> Iterator[Job]:
    process = Job(broker.bootstrap, tmp_path)
    yield process
    process.kill()


def test_no_row_is_lost_when_drivers_and_brokers_are_killed(
    broker: PenstockProcess,
    job: Job,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    rng = random.Random(6)
    kills = during_batch = produced = 0
    while kills < KILLS or during_batch < KILLS / 2:
        assert kills < 2 * KILLS, f"only {during_batch} of {kills} kills happened during a batch"
        produced = produce_numbers(broker.bootstrap, SOURCE, PARTITIONS, produced, ROWS_PER_JOB)
        job.start()
        job.wait_progress()
        if kills % 2:
            broker.kill()
            broker.start()
            time.sleep(rng.uniform(0, 2))
        else:
            job.wait_for_batch(QUERIES[kills // 2 % 2])
        job.kill()
        kills += 1
        during_batch += any(running_batches(tmp_path, query) for query in QUERIES)
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
        f"{kills} Spark drivers killed, {during_batch} of them during a batch, and the broker "
        f"{kills // 2} times: {produced} rows exactly once in Parquet, "
        f"{len(written) - produced} duplicates in the topic",
    )


def batch_ids(directory: Path) -> set[int]:
    return (
        {int(file.name) for file in directory.iterdir() if file.name.isdecimal()}
        if directory.exists()
        else set()
    )


def committed(directory: Path, query: str) -> set[int]:
    return batch_ids(checkpoint(directory, query) / "commits")


def running_batches(directory: Path, query: str) -> set[int]:
    """Return batches with an offsets file and without a commit file. The commit files are listed
    last, since a batch may end meanwhile."""
    offsets = batch_ids(checkpoint(directory, query) / "offsets")
    return offsets - committed(directory, query)


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
    values: list[str] = []
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, timeout=10):
            if message.error() is None:
                values.append((message.value() or b"").decode())
            else:
                ended += 1
    consumer.close()
    return values
