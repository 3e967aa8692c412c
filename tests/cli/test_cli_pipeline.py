"""penstock pipeline and penstock sql as they are called: one project from init to status, and what
mistakes are answered with."""

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
from penstock.cli.sql import _text
from penstock.spark.pipeline.progress import QueryProgress

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]
# Spark starts within seconds, and within a minute or two where many tests share a machine.
PATIENCE_S = 400


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "1"}) as cluster:
        yield cluster.bootstrap_servers


def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def produce(servers: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce("orders", value=value)
    producer.flush()


def test_a_new_project_runs_until_it_is_stopped_between_two_batches(
    servers: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    made = call("pipeline", "init", project)
    assert made.stdout.splitlines() == [str(project / "pipeline.py"), str(project / ".gitignore")]
    assert "File exists" in call("pipeline", "init", project).stderr, "nothing is written over"

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
    # Nothing to read for so long is the end of the test.
    impatience = threading.Timer(PATIENCE_S, running.kill)
    impatience.start()
    try:
        done: list[str] = []
        while len({line.partition(":")[0] for line in done}) < 3:
            line = running.stderr.readline()
            assert line, done
            done.append(line)
        produce(servers, *['{"customer": "bob", "amount": 100}'] * 10)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(PATIENCE_S) == 0
    finally:
        impatience.cancel()
        running.kill()
        running.stderr.close()
    assert any(
        line.startswith("bad: batch 0, rows 3,") and line.rstrip().endswith("dead letters 1")
        for line in done
    ), done
    assert not [line for line in done if "WARN" in line]

    status = json.loads(
        call("pipeline", "status", path, "--bootstrap-server", servers, "--json").stdout
    )
    assert [one["query"] for one in status] == ["bad", "large", "table"]
    for one in status:
        assert one["batch"] is not None
        assert one["offset"] + one["lag"] == 13
    assert list((project / "orders.parquet").glob("*.parquet"))


def test_sql_prints_the_table_alone(servers: str) -> None:
    found = call(
        "sql", "select 1 as one, 'a' as b", "--bootstrap-server", servers, "--master", "local[1]"
    )
    assert (found.returncode, found.stdout) == (0, "one  b\n1    a\n"), found.stderr


def test_sql_says_what_is_wrong_in_one_line(servers: str) -> None:
    found = call(
        "sql", "select * from orders", "--bootstrap-server", servers, "--master", "local[1]"
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert (
        found.stderr
        == "penstock sql: there is no table orders: write topic('orders') for a topic\n"
    )


def test_a_cell_is_one_line_and_tells_a_terminal_nothing() -> None:
    assert _text("ü\n\x1b[2J") == r"ü\n\x1b[2J"
    assert _text(b"\xff\0") == "\ufffd\\x00"
    assert _text([{"a": None}]) == '[{"a": null}]'


def test_progress_as_a_table_and_as_a_line() -> None:
    one = QueryProgress(
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
    assert batch_line("totals", one) == f"totals: batch 3, rows 1,200, {line}, dead letters 2"
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(progress_table({"totals": one, "new": QueryProgress()}))
    heading, *rows = [line.split() for line in console.export_text().splitlines()]
    assert heading[:3] == ["QUERY", "BATCH", "ROWS"]
    assert [row[:3] for row in rows] == [["totals", "3", "1,200"], ["new", "-", "0"]]


@pytest.mark.parametrize(
    ("words", "says"),
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
    ],
)
def test_mistakes_are_told_in_one_line_before_spark_starts(words: list[str], says: str) -> None:
    found = call(*words)
    assert found.returncode == 1
    assert says in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert found.stdout == ""
