"""Pipelines without Spark: progress, checkpoints, error messages, and invalid files."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.ids import TopicPartition
from penstock.spark.errors import spark_reason
from penstock.spark.options import OptionError
from penstock.spark.pipeline import declarative as pipeline_declarative
from penstock.spark.pipeline import queries as pipeline_queries
from penstock.spark.pipeline.application import check_file, find_file, load_application
from penstock.spark.pipeline.checkpoint import (
    QueryCheckpoint,
    describe_last_batch,
    read_checkpoints,
)
from penstock.spark.pipeline.declarative import find_spec, project_checkpoints, run_project
from penstock.spark.pipeline.errors import PipelineError, query_failure
from penstock.spark.pipeline.progress import QueryProgress
from penstock.spark.pipeline.queries import RunningQueries
from penstock.spark.pipeline.writers import sink_name


def reported(batch: int, **fields: Any) -> dict[str, Any]:
    """Return a StreamingQueryProgress in JSON form."""
    return {
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "batchId": batch,
        "numInputRows": 10,
        "sources": [],
        **fields,
    }


def test_progress_sums_rows_and_keeps_the_last_of_other_values() -> None:
    source = {
        "endOffset": {"orders": {"0": 5, "1": 9}},
        "latestOffset": json.dumps({"orders": {"0": 7, "1": 9}, "#lag": 2}),
    }
    first = reported(
        0,
        sources=[source, {"endOffset": {"logOffset": 3}, "latestOffset": None}],
        inputRowsPerSecond=20.0,
        processedRowsPerSecond=40.0,
        batchDuration=250,
        eventTime={"watermark": "1970-01-01T00:00:00.000Z"},
        stateOperators=[{"numRowsTotal": 4, "numRowsDroppedByWatermark": 1}],
        observedMetrics={"dead letters": {"rows": 2}},
    )
    progress = QueryProgress().after(first)
    assert progress == QueryProgress(
        first["timestamp"], 0, 10, 20.0, 40.0, 250, {"orders": 2}, None, 4, 1, 2
    )
    assert progress.after(first) is progress, "a report is counted once"
    second = progress.after(
        reported(
            1,
            eventTime={"watermark": "2026-01-01T00:00:00.000Z"},
            observedMetrics={"dead letters": {"rows": 3}},
        )
    )
    assert (
        second.batch,
        second.rows,
        second.lag,
        second.watermark,
        second.late_rows,
        second.dead_letters,
    ) == (
        1,
        20,
        {"orders": 2},
        "2026-01-01T00:00:00.000Z",
        1,
        5,
    )


class FailingQuery:
    """A query and its writer; every start fails."""

    isActive = False  # noqa: N815 - Spark's name
    recentProgress: tuple[Any, ...] = ()  # noqa: N815
    status: Mapping[str, str] = {"message": "Initializing sources"}

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.starts = 0

    def start(self) -> FailingQuery:
        self.starts += 1
        return self

    def exception(self) -> str:
        return self.reason


@pytest.mark.parametrize(
    ("reason", "starts"), [("Python worker failed to connect back.", 6), ("division by zero", 1)]
)
def test_query_is_restarted_if_its_python_process_started_too_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, starts: int
) -> None:
    monkeypatch.setattr(pipeline_queries, "configured", lambda writer, *_args, **_options: writer)
    writer: Any = FailingQuery(reason)
    queries = RunningQueries(
        {"totals": writer}, str(tmp_path), tmp_path, once=False, fail_on_late_rows=False
    )
    queries.start()
    with pytest.raises(PipelineError, match=f"query totals failed: {reason}"):
        while queries.poll():
            pass
    assert writer.starts == starts
    assert queries.progress["totals"].status == "Initializing sources"


def write_batch(query: Path, batch: int, offsets: dict[str, Any], *, committed: bool) -> None:
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True, exist_ok=True)
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1000 + batch}
    (query / "offsets" / str(batch)).write_text(
        "\n".join(["v1", json.dumps(metadata), json.dumps(offsets), '{"logOffset":1}'])
    )
    (query / "offsets" / f".{batch}.crc").write_bytes(b"")
    if committed:
        (query / "commits" / str(batch)).write_text("v1\n{}")


def test_checkpoint_has_batches_and_offsets_of_its_queries(tmp_path: Path) -> None:
    write_batch(
        tmp_path / "totals", 0, {"orders": {"0": 5}, "#began": {"orders": {"0": 2}}}, committed=True
    )
    assert describe_last_batch(tmp_path / "totals") == "batch 0 reads orders-0 offsets 2 to 4"
    write_batch(tmp_path / "totals", 1, {"orders": {"0": 9}}, committed=False)
    (tmp_path / "spark.log").write_text("")
    assert read_checkpoints(tmp_path) == [
        QueryCheckpoint("totals", 0, 1, 1001, None, {TopicPartition("orders", 0): 5})
    ]
    assert describe_last_batch(tmp_path / "totals") == "batch 1 reads orders-0 offsets 5 to 8"
    assert describe_last_batch(tmp_path / "nowhere") == ""
    with pytest.raises(OptionError, match="contains no checkpoint of a query"):
        read_checkpoints(tmp_path / "totals")


CAST = """[CAST_INVALID_INPUT] The value 'x' cannot be cast to "INT". SQLSTATE: 22018
== DataFrame ==
"cast" was called from
{file}:2

=== Streaming Query ===
Identifier: a"""
UDF = """[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "/elsewhere/worker.py", line 1, in main
  File "{file}", line 2, in amounts
ZeroDivisionError: division by zero
 SQLSTATE: 38000
=== Streaming Query ==="""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            UDF.replace("{file}", "/worker/modules.zip/steps.py"),
            "ZeroDivisionError: division by zero",
        ),
        (
            CAST,
            """[CAST_INVALID_INPUT] The value 'x' cannot be cast to "INT" """,
        ),
        (UDF, "ZeroDivisionError: division by zero"),
    ],
)
def test_query_failure_names_step_line_and_offsets(
    tmp_path: Path, message: str, reason: str
) -> None:
    path = tmp_path / "steps.py"
    path.write_text("def amounts(rows):\n    return rows.select(F.col('amount').cast('int'))\n")
    failure = query_failure(
        message.format(file=path),
        "large",
        "batch 1 reads orders-0 offsets 5 to 8",
        tmp_path,
    )
    step = "step amounts (steps.py, line 2): return rows.select(F.col('amount').cast('int'))"
    assert failure == (
        f"query large failed: {step}: {reason.strip()} (batch 1 reads orders-0 offsets 5 to 8)"
    )


def test_penstock_errors_keep_their_message() -> None:
    trace = (
        "Traceback (most recent call last):\n  File 'a'\npenstock.errors.KafkaError: no topic "
        "x: create it\n"
    )
    text = f"java.lang.X: Y\n at Z\nCaused by: {trace}"
    assert spark_reason(text) == "no topic x: create it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no function build: add `def build"),
        ("def build(:", r"bad.py, line 1: syntax error"),
        (
            "import nothing_such",
            r"bad.py, line 1: ModuleNotFoundError: No module named 'nothing_such'",
        ),
        (
            "def helper():\n    raise ValueError('no')\nhelper()",
            r"step helper \(bad.py, line 2\): ValueError: no",
        ),
    ],
)
def test_invalid_pipeline_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(PipelineError, match=message):
        load_application(tmp_path / "bad.py")


def test_invalid_pipeline_paths(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for path, message in (
        (tmp_path / "none.py", "does not exist"),
        (tmp_path, "without pipeline.py and spark-pipeline.yml"),
        (tmp_path / "notes.txt", "not a Python file"),
    ):
        with pytest.raises(PipelineError, match=message):
            check_file(path)


def test_directory_with_a_pipeline_stands_for_its_file(tmp_path: Path) -> None:
    assert find_file(tmp_path) == tmp_path
    (tmp_path / "pipeline.py").write_text("")
    assert find_file(tmp_path) == tmp_path / "pipeline.py"
    assert find_file(tmp_path / "other.py") == tmp_path / "other.py"


def test_project_has_the_newest_checkpoint_of_each_flow(tmp_path: Path) -> None:
    spec = tmp_path / "spark-pipeline.yml"
    storage = tmp_path / "a storage"
    spec.write_text(f"name: orders\nstorage: {storage.as_uri()}\n")
    with pytest.raises(PipelineError, match="contains no checkpoint of a flow: run the project"):
        project_checkpoints(spec)
    flows = storage / "_checkpoints"
    write_batch(flows / "default" / "orders" / "orders" / "9", 4, {}, committed=True)
    write_batch(
        flows / "default" / "orders" / "orders" / "10", 0, {"orders": {"0": 5}}, committed=True
    )
    write_batch(flows / "large" / "to_large" / "0", 2, {"logOffset": 1}, committed=False)
    assert project_checkpoints(spec) == [
        QueryCheckpoint("orders", 0, 0, 1000, None, {TopicPartition("orders", 0): 5}),
        QueryCheckpoint("to_large", None, 2, 1002, None, {}),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage: s3://bucket/orders", "s3://bucket/orders in .* is not on this machine"),
        ("name: orders", "has no storage"),
        ("- orders", "has no storage"),
        ("storage: [", "is not valid YAML"),
    ],
)
def test_projects_whose_checkpoints_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(text)
    with pytest.raises(PipelineError, match=message):
        project_checkpoints(tmp_path / "spark-pipeline.yml")


def test_sink_names_of_remote_checkpoints_differ_by_location() -> None:
    here, there = "hdfs://one/orders/totals", "hdfs://two/orders/totals"
    assert sink_name(here).startswith("totals-")
    assert sink_name(here) == sink_name(here)
    assert sink_name(here) != sink_name(there)
    assert "/" not in sink_name(here)


def test_declarative_project_is_run_by_sparks_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_spec(tmp_path) is None
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text("name: orders\n")
    assert find_spec(tmp_path) == find_spec(spec) == spec
    commands: list[tuple[list[str], dict[str, str]]] = []

    def run(
        command: list[str], *, env: dict[str, str], stderr: Any, **_options: Any
    ) -> subprocess.CompletedProcess[str]:
        commands.append((command, env))
        stderr.write(
            (
                f'Traceback (most recent call last):\n  File "{spec.parent}/orders.py", line 2, in '
                "orders\nValueError: no\n"
            ).encode()
        )
        return subprocess.CompletedProcess(command, 1)

    (tmp_path / "orders.py").write_text("def orders():\n    raise ValueError('no')\n")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(pipeline_declarative, "_REQUIRED_MODULES", ("nothing_such",))
    with pytest.raises(
        PipelineError,
        match=r"need nothing_such, which is not installed: run pip install 'penstock\[spark\]'",
    ):
        run_project(spec, "broker:9092", "local[2]", {}, dry_run=False)
    monkeypatch.setattr(pipeline_declarative, "_REQUIRED_MODULES", ())
    with pytest.raises(
        PipelineError,
        match=(
            r"^step orders \(orders.py, line 2\): raise ValueError\('no'\): ValueError: no "
            r"\(Spark's log is"
        ),
    ):
        run_project(
            spec,
            "broker:9092",
            "local[2]",
            {"spark.executor.memory": "2g", "spark.sql.catalogImplementation": "in-memory"},
            dry_run=True,
        )
    command, environment = commands[0]
    assert command[1:] == ["-m", "pyspark.pipelines.cli", "dry-run", "--spec", str(spec)]
    assert environment["MASTER"] == "local[2]"
    arguments = shlex.split(environment["PYSPARK_SUBMIT_ARGS"])
    assert {"spark.penstock.bootstrap.servers=broker:9092", "spark.executor.memory=2g"} < set(
        arguments
    )
    assert "spark.sql.catalogImplementation=in-memory" in arguments, (
        "explicit settings override defaults"
    )
