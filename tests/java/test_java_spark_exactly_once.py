"""The crash matrix of the exactly-once sink against Apache Kafka, which has no two-phase commit.

The inline form is one transaction per batch. Prepared transactions fail loudly past their timeout;
PENSTOCK_DRILL=1 waits for it. Run by `make test-java`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.java.kafka_node import KafkaNode
from tests.spark.crash_faults import Action
from tests.spark.crash_queries import crash_at_each, run_to_the_end
from tests.spark.crash_rows import TIMEOUT_S, past_the_timeout
from tests.spark.crash_source import INLINE_STEPS
from tests.spark.crash_stream import ROWS_IN_BATCH, SMALL_BYTES, Stream

# Not in the group of Spark tests, which runs first: the session of test_java_spark_connector has
# Spark's own connector too, and a process has only one.
pytestmark = pytest.mark.java

RACES = 3
Note = Callable[[str, object], None]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"transaction.max.timeout.ms": str(1000 * TIMEOUT_S)}
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), settings)
    try:
        node.start()
        yield node.bootstrap
    finally:
        node.kill()


def test_a_crash_at_each_step_of_the_inline_form(
    servers: str, tmp_path: Path, record_property: Note
) -> None:
    with Stream(servers, tmp_path, "inline", replicas=1) as stream:
        summary = crash_at_each(stream, INLINE_STEPS, large_bytes=SMALL_BYTES)
        record_property("note", f"crash matrix on Apache Kafka, inline: {summary}")


def test_a_decision_in_doubt(servers: str, tmp_path: Path) -> None:
    with Stream(servers, tmp_path, "inline-doubt", replicas=1) as stream:
        for _round in range(RACES):
            stream.faults.arm("decision", Action.RACE)
            stream.produce(rows=ROWS_IN_BATCH, large_bytes=SMALL_BYTES)
            assert run_to_the_end(stream) == 1
            stream.check.wait_until_ended()
            stream.check.check(stream.expected)


def test_at_least_once_delivery_fails_the_check(servers: str, tmp_path: Path) -> None:
    with Stream(servers, tmp_path, "bites", replicas=1, delivery="at-least-once") as stream:
        stream.faults.arm("committed", Action.KILL)
        stream.produce(rows=ROWS_IN_BATCH, large_bytes=SMALL_BYTES)
        assert run_to_the_end(stream) == 1
        results = stream.check.results(stream.expected)
    assert (results.lost, results.duplicates) == ([], sorted(stream.expected))


if os.environ.get("PENSTOCK_DRILL"):

    def test_prepared_transactions_past_their_timeout(
        servers: str, tmp_path: Path, record_property: Note
    ) -> None:
        summary = past_the_timeout(servers, tmp_path, 3, replicas=1)
        record_property("note", f"past the timeout of Apache Kafka: {summary}")
