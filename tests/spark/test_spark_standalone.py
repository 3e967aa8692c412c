"""`penstock pipeline run --master spark://…` on a Spark cluster whose workers have no Penstock: the
driver ships it to them. A worker is killed, and no row is lost.

PENSTOCK_DRILL=1 also runs the payments pipeline.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

import penstock
from pipelines.payments import pipeline as payments
from pipelines.payments.audit import audit, read_output
from pipelines.payments.truth import Truth
from tests.e2e.penstock_process import COMMAND
from tests.spark.live import create_topics, produce_numbers
from tests.spark.shipped import report
from tests.spark.standalone import SparkStandalone

# In one pytest-xdist worker, with the shared Spark session.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.more]

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
# The queries of the payments pipeline.
QUERIES = ("dead-letters", "totals", "table", "alerts")
# Only against hanging: Spark can take minutes to start on a busy machine.
TIMEOUT_S = 900.0


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkStandalone]:
    with SparkStandalone(tmp_path / "spark", workers=2) as cluster:
        yield cluster


@pytest.fixture
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


class CopiedRecords:
    """The values written so far, and the paths from which workers imported Penstock."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False}
        )
        self._consumer.assign(
            [TopicPartition(report.SINK, index, 0) for index in range(PARTITIONS)]
        )
        self.values: set[str] = set()
        self.files: set[Path] = set()

    def poll(self) -> None:
        for message in self._consumer.consume(1_000, timeout=1):
            assert message.error() is None
            self._add(message)

    def _add(self, message: Message) -> None:
        self.values.add((message.value() or b"").decode())
        file = dict(message.headers() or ())[report.HEADER]
        assert isinstance(file, bytes)
        self.files.add(Path(file.decode()))

    def close(self) -> None:
        self._consumer.close()


class PipelineProcess:
    """A `penstock pipeline run` process."""

    def __init__(
        self, pipeline: Path, directory: Path, servers: str, master: str, *options: str
    ) -> None:
        self._output = directory / "output"
        self._deadline = time.monotonic() + TIMEOUT_S
        arguments = [
            "--bootstrap-server",
            servers,
            "--master",
            master,
            "--checkpoint",
            str(directory / "checkpoint"),
            *options,
        ]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [COMMAND, "pipeline", "run", pipeline, *arguments],
                stdout=output,
                stderr=output,
                cwd=directory,
            )

    def __enter__(self) -> PipelineProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()

    def check_alive(self) -> None:
        assert self._process.poll() is None, f"the pipeline ended unexpectedly:\n{self._log()}"
        assert time.monotonic() < self._deadline, f"the pipeline made no progress:\n{self._log()}"

    def stop(self) -> None:
        """Send SIGINT, which stops the pipeline between batches."""
        self._process.send_signal(signal.SIGINT)
        self.finish()

    def finish(self) -> None:
        assert self._process.wait(TIMEOUT_S) == 0, self._log()

    def _log(self) -> str:
        return self._output.read_text(errors="replace")[-4000:]


def test_no_row_is_lost_when_a_worker_is_killed(
    spark: SparkStandalone, servers: str, tmp_path: Path
) -> None:
    create_topics(servers, PARTITIONS, report.SOURCE, report.SINK)
    produced, copied = 0, CopiedRecords(servers)
    with PipelineProcess(Path(report.__file__), tmp_path, servers, spark.master) as run:
        while {worker_of(file, spark) for file in copied.files} != {0, 1}:
            produced = produce_numbers(servers, report.SOURCE, PARTITIONS, produced, 100)
            copied.poll()
            run.check_alive()
        spark.kill_worker(0)
        produced = produce_numbers(servers, report.SOURCE, PARTITIONS, produced, 1_000)
        while len(copied.values) < produced:
            copied.poll()
            run.check_alive()
        run.stop()
    copied.close()
    assert copied.values == {str(number) for number in range(produced)}


def worker_of(file: Path, spark: SparkStandalone) -> int:
    """Return the number of the worker whose directory contains the file."""
    numbers = [
        number
        for number, directory in enumerate(spark.directories)
        if file.is_relative_to(directory)
    ]
    assert numbers, f"a task imported Penstock from {file}, outside of its worker's directory"
    return numbers[0]


if os.environ.get("PENSTOCK_DRILL"):

    def test_payments_are_correct_when_a_worker_is_killed(
        spark: SparkStandalone,
        servers: str,
        tmp_path: Path,
        record_property: Callable[[str, object], None],
    ) -> None:
        """Payments are sent while the pipeline runs; a second run processes the rest."""
        create_topics(
            servers,
            PARTITIONS,
            payments.PAYMENTS,
            payments.TOTALS,
            payments.ALERTS,
            payments.DEAD_LETTERS,
        )
        truth, tables, file = tmp_path / "truth.json", tmp_path / "tables", Path(payments.__file__)
        generate = [
            sys.executable,
            "-m",
            "pipelines.payments.generate",
            "--bootstrap-server",
            servers,
            "--truth",
            str(truth),
        ]
        arguments = (file, tmp_path, servers, spark.master, "-c", f"tables={tables}")
        with subprocess.Popen(
            [*generate, "--payments", "20000", "--rate", "300"], cwd=ROOT
        ) as generator:
            with PipelineProcess(*arguments) as run:
                while (
                    min(
                        len(list(tmp_path.glob(f"checkpoint/{query}/commits/[0-9]*")))
                        for query in QUERIES
                    )
                    < 2
                ):
                    run.check_alive()
                    time.sleep(0.1)
                spark.kill_worker(0)
                assert generator.wait(TIMEOUT_S) == 0
                run.stop()
            with PipelineProcess(*arguments, "--once") as run:
                run.finish()
        lines = audit(Truth.load(truth), read_output(servers, tables))
        assert [line for line in lines if not line.correct] == [], lines
        record_property(
            "note",
            (
                "payments on a Spark cluster with a killed worker: "
                f"{'; '.join(f'{line.name} {line.text}' for line in lines)}"
            ),
        )
