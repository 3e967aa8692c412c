"""A Spark Declarative Pipelines project, in Python and SQL, from `init` on: what it finds in a
topic, and what came when it runs again."""

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

PATIENCE_S = 600


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "1"}) as cluster:
        yield cluster.bootstrap_servers


def pipeline(verb: str, project: Path, *words: str) -> str:
    """What it printed."""
    command = [
        sys.executable,
        "-c",
        "from penstock.cli import main; main()",
        "pipeline",
        verb,
        str(project),
        *words,
    ]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=project.parent, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    assert ran.stderr == "", "no wall of logs"
    return ran.stdout


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
    found = [
        (one.key(), json.loads(one.value() or b"")["amount"])
        for one in consumer.consume(count + 1, timeout=10)
    ]
    consumer.close()
    return found


def totals(project: Path) -> list[tuple[str, int, int]]:
    return sorted(
        tuple(row.values())
        for row in pq.read_table(project / "spark-warehouse" / "totals").to_pylist()
    )


def test_a_project_from_its_making_to_its_second_run(servers: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    made = pipeline("init", project, "--declarative").splitlines()
    assert [str(Path(one).relative_to(project)) for one in made] == [
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
    assert not (project / "storage").exists(), "nothing was run"

    assert "Run is COMPLETED" in pipeline(
        "run", project, "--bootstrap-server", servers, "--master", "local[2]"
    )
    assert totals(project) == [("ann", 2, 123)]
    assert large_orders(servers, 1) == [(b"ann", 120)]

    produce(servers, '{"customer": "bob", "amount": 100}')
    pipeline("run", project, "--bootstrap-server", servers, "--master", "local[2]")
    assert totals(project) == [("ann", 2, 123), ("bob", 1, 100)]
    assert large_orders(servers, 2) == [(b"ann", 120), (b"bob", 100)]
