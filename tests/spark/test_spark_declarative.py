"""A Spark Declarative Pipelines project in Python and SQL: init, validate, and two runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import penstock

TIMEOUT_S = 600


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "1"}) as cluster:
        yield cluster.bootstrap_servers


def pipeline(command: str, project: Path, *options: str) -> str:
    """Run `penstock pipeline` and return its output."""
    arguments = [
        sys.executable,
        "-c",
        "from penstock.cli import main; main()",
        "pipeline",
        command,
        str(project),
        *options,
    ]
    result = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=project.parent,
        check=False,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert result.stderr == "", "Spark's log goes to a file"
    return result.stdout


def produce(servers: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce("orders", value=value)
    assert producer.flush(60) == 0


def large_orders(servers: str, count: int) -> list[tuple[bytes | None, int]]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("large-orders", 0, 0)])
    orders = [
        (message.key(), json.loads(message.value() or b"")["amount"])
        for message in consumer.consume(count + 1, timeout=10)
    ]
    consumer.close()
    return orders


def totals(project: Path) -> list[tuple[str, int, int]]:
    return sorted(
        tuple(row.values())
        for row in pq.read_table(project / "spark-warehouse" / "totals").to_pylist()
    )


@pytest.mark.more
def test_project_validates_runs_and_continues_in_a_second_run(servers: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    created = pipeline("init", project, "--declarative").splitlines()
    assert [str(Path(file).relative_to(project)) for file in created] == [
        "spark-pipeline.yml",
        "transformations/orders.py",
        "transformations/totals.sql",
        ".gitignore",
    ]
    produce(
        servers,
        '{"customer": "ann", "amount": 120}',
        '{"customer": "ann", "amount": 3}',
        "nonsense",
    )
    assert "Run is COMPLETED" in pipeline("validate", project, "--bootstrap-server", servers)
    assert not (project / "storage").exists(), "a dry run creates no storage"

    assert "Run is COMPLETED" in pipeline(
        "run", project, "--bootstrap-server", servers, "--master", "local[2]"
    )
    assert totals(project) == [("ann", 2, 123)]
    assert large_orders(servers, 1) == [(b"ann", 120)]

    produce(servers, '{"customer": "bob", "amount": 100}')
    pipeline("run", project, "--bootstrap-server", servers, "--master", "local[2]")
    assert totals(project) == [("ann", 2, 123), ("bob", 1, 100)]
    status = json.loads(pipeline("status", project, "--bootstrap-server", servers, "--json"))
    assert [(row["query"], row["topic"], row["offset"], row["lag"]) for row in status] == [
        ("orders", "orders", 4, 0),
        ("to_large_orders", None, None, None),
    ]
    assert large_orders(servers, 2) == [(b"ann", 120), (b"bob", 100)]
