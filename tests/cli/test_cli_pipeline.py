"""penstock pipeline and penstock sql as processes: a project from init to status, and errors."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from rich.console import Console

import penstock
from penstock.cli.pipeline.output import batch_line, progress_table
from penstock.cli.sql import _text, _with_advice
from penstock.spark.pipeline.progress import QueryProgress

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]
# Spark starts within seconds, but can take minutes on a busy machine.
TIMEOUT_S = 400


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "1"}) as cluster:
        yield cluster.bootstrap_servers


def penstock_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def produce(servers: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce("orders", value=value)
    producer.flush()


@pytest.mark.more
def test_new_project_runs_and_stops_between_batches(servers: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    created = penstock_command("pipeline", "init", project)
    assert created.stdout.splitlines() == [
        str(project / "pipeline.py"),
        str(project / ".gitignore"),
    ]
    assert "File exists" in penstock_command("pipeline", "init", project).stderr, (
        "init overwrites nothing"
    )

    produce(
        servers,
        '{"customer": "ann", "amount": 120}',
        '{"customer": "ann", "amount": 3}',
        "nonsense",
    )
    path = project / "pipeline.py"
    running = subprocess.Popen(
        [
            *COMMAND,
            "pipeline",
            "run",
            str(path),
            "--bootstrap-server",
            servers,
            "--master",
            "local[2]",
        ],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stderr is not None
    # Ends the test if there is no output to read.
    timeout = threading.Timer(TIMEOUT_S, running.kill)
    timeout.start()
    try:
        lines: list[str] = []
        while len({line.partition(":")[0] for line in lines if ": batch " in line}) < 3:
            line = running.stderr.readline()
            assert line, lines
            lines.append(line)
        produce(servers, *['{"customer": "bob", "amount": 100}'] * 10)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(TIMEOUT_S) == 0
    finally:
        timeout.cancel()
        running.kill()
        running.stderr.close()
    assert any(
        line.startswith("bad: batch 0, rows 3,") and line.rstrip().endswith("dead letters 1")
        for line in lines
    ), lines
    assert not [line for line in lines if "WARN" in line]
    assert lines[0].startswith("penstock pipeline run: starting Spark with the master local[2]")
    assert lines[1].startswith("penstock pipeline run: Spark is ready; its UI is http://"), lines
    assert any(line.startswith("bad: ") and "batch" not in line for line in lines), (
        "the status of a query is shown before its first batch"
    )

    status = json.loads(
        penstock_command(
            "pipeline", "status", project, "--bootstrap-server", servers, "--json"
        ).stdout
    )
    assert [row["query"] for row in status] == ["bad", "large", "table"]
    for row in status:
        assert row["batch"] is not None
        assert row["offset"] + row["lag"] == 13
    assert list((project / "orders.parquet").glob("*.parquet"))


def test_sql_prints_only_the_table(servers: str) -> None:
    result = penstock_command(
        "sql", "select 1 as one, 'a' as b", "--bootstrap-server", servers, "--master", "local[1]"
    )
    assert (result.returncode, result.stdout) == (0, "one  b\n1    a\n"), result.stderr


@pytest.mark.more
def test_sql_error_is_one_line(servers: str) -> None:
    result = penstock_command(
        "sql", "select * from orders", "--bootstrap-server", servers, "--master", "local[1]"
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert (
        result.stderr
        == "penstock sql: there is no table orders: write topic('orders') for a topic\n"
    )


def test_missing_table_error_explains_topic() -> None:
    spark = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `orders` cannot be found. Verify the name"
    assert _with_advice(spark) == "there is no table orders: write topic('orders') for a topic"
    assert _with_advice("[PARSE_SYNTAX_ERROR] x") == "[PARSE_SYNTAX_ERROR] x"


def test_cells_are_escaped() -> None:
    assert _text("ü\n\x1b[2J") == r"ü\n\x1b[2J"
    assert _text(b"\xff\0") == "\ufffd\\x00"
    assert _text([{"a": None}]) == '[{"a": null}]'


def test_progress_table_and_line() -> None:
    progress = QueryProgress(
        "t",
        3,
        1200,
        10.4,
        99.6,
        1500,
        {"orders": 7, "refunds": 0},
        "2026-01-01T00:00:00.000Z",
        4,
        0,
        2,
    )
    line = (
        "in/s 10, done/s 100, batch time 1.5 s, lag orders=7 refunds=0, watermark "
        "2026-01-01T00:00:00.000Z, state rows 4, late rows 0"
    )
    assert batch_line("totals", progress) == f"totals: batch 3, rows 1,200, {line}, dead letters 2"
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(progress_table({"totals": progress, "new": QueryProgress()}))
    heading, *rows = [line.split() for line in console.export_text().splitlines()]
    assert heading[:3] == ["QUERY", "BATCH", "ROWS"]
    assert [row[:3] for row in rows] == [["totals", "3", "1,200"], ["new", "-", "0"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["pipeline", "run", "nowhere.py", "--bootstrap-server", "localhost:1"],
            "cannot connect to localhost:1",
        ),
        (
            ["sql", "select * from topic('orders')", "--bootstrap-server", "localhost:1"],
            "cannot connect to localhost:1",
        ),
        (
            ["pipeline", "validate", "nowhere.py"],
            "nowhere.py does not exist: specify the .py file of a pipeline",
        ),
        (["pipeline", "status", "nowhere"], "nowhere contains no checkpoint of a query"),
        (["sql", "selct 1"], "a query cannot begin with selct: did you mean select?"),
        (["sql", "select 'one"], "the quote ' at line 1, column 8 is not closed"),
    ],
)
def test_errors_are_one_line_before_spark_starts(arguments: list[str], message: str) -> None:
    result = penstock_command(*arguments)
    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
