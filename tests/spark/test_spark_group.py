"""With the option groupId a query's offsets are committed to that group at each batch, and every
tool of Kafka's shows its lag."""

from __future__ import annotations

import json
import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import penstock
from penstock.spark.options import source_options
from penstock.spark.source.stream import StreamReader
from tests.e2e.penstock_process import COMMAND
from tests.spark.live import create_topics, produce_numbers, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2
PATIENCE_S = 120


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


def committed(servers: str, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        found = consumer.committed(
            [TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30
        )
        return {one.partition: one.offset for one in found if one.offset >= 0}
    finally:
        consumer.close()


def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


class Query:
    """A streaming query with a group; what had been committed when each of its batches was worked
    on."""

    def __init__(
        self,
        spark: SparkSession,
        servers: str,
        topic: str,
        group: str,
        checkpoint: Path,
        **options: str,
    ) -> None:
        self.seen: list[tuple[list[int], dict[int, int]]] = []
        self._servers, self._topic, self._group = servers, topic, group
        given = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "groupId": group,
            "startingOffsets": "earliest",
            **options,
        }
        stream = spark.readStream.format("penstock").options(**given).load()
        self._writer = stream.writeStream.foreachBatch(self._keep).option(
            "checkpointLocation", str(checkpoint)
        )

    def _keep(self, rows: DataFrame, _batch_id: int) -> None:
        numbers = sorted(int(row.value) for row in rows.select("value").collect())
        self.seen.append((numbers, committed(self._servers, self._group, self._topic)))

    def numbers(self) -> list[int]:
        return [number for numbers, _committed in self.seen for number in numbers]

    def drain(self) -> None:
        assert self._writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    def start(self) -> StreamingQuery:
        return self._writer.trigger(processingTime="0 seconds").start()


def lags(servers: str, group: str) -> dict[int, int]:
    """As `penstock groups describe` and `kafka-consumer-groups.sh` say, which must be the same."""
    told = json.loads(
        said(
            COMMAND,
            "groups",
            "describe",
            group,
            "--over",
            "0",
            "--json",
            "--bootstrap-server",
            servers,
        )
    )
    ours = {one["partition"]: one["lag"] for one in told["partitions"]}
    table = said(
        COMMAND.parent / "kafka-consumer-groups.sh",
        "--bootstrap-server",
        servers,
        "--describe",
        "--group",
        group,
    )
    rows = [line.split() for line in table.splitlines() if line.startswith(group)]
    assert {int(row[2]): int(row[5]) for row in rows} == ours
    return ours


def said(command: Path, *words: str) -> str:
    return subprocess.run(
        [str(command), *words],
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=True,
    ).stdout


def test_each_batch_is_committed_and_a_restart_goes_on(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create_topics(servers, PARTITIONS, "orders")
    produce_numbers(servers, "orders", PARTITIONS, 0, 100)
    first = Query(spark, servers, "orders", "readers", tmp_path, maxOffsetsPerTrigger="60")
    first.drain()
    assert [(len(numbers), at) for numbers, at in first.seen] == [(60, {}), (40, {0: 30, 1: 30})]
    assert committed(servers, "readers", "orders") == {0: 50, 1: 50}
    assert lags(servers, "readers") == {0: 0, 1: 0}
    produce_numbers(servers, "orders", PARTITIONS, 100, 30)
    assert lags(servers, "readers") == {0: 15, 1: 15}
    second = Query(spark, servers, "orders", "readers", tmp_path)
    running = second.start()
    try:
        wait_for(
            lambda: committed(servers, "readers", "orders") == {0: 65, 1: 65},
            lambda: f"{second.seen}",
        )
        produce_numbers(servers, "orders", PARTITIONS, 130, 20)
        # The query then has nothing to do, and does not lag behind.
        wait_for(
            lambda: committed(servers, "readers", "orders") == {0: 75, 1: 75},
            lambda: f"{second.seen}",
        )
    finally:
        running.stop()
    assert first.numbers() + second.numbers() == list(range(150))
    assert lags(servers, "readers") == {0: 0, 1: 0}


def test_a_restart_tells_what_the_last_run_could_not(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create_topics(servers, PARTITIONS, "told")
    produce_numbers(servers, "told", PARTITIONS, 0, 10)
    Query(spark, servers, "told", "tellers", tmp_path).drain()
    said(COMMAND, "groups", "delete", "tellers", "--bootstrap-server", servers)
    assert committed(servers, "tellers", "told") == {}
    again = Query(spark, servers, "told", "tellers", tmp_path)
    again.drain()
    assert (again.numbers(), committed(servers, "tellers", "told")) == ([], {0: 5, 1: 5})


def test_a_group_with_members_is_left_alone_and_the_query_goes_on(
    spark: SparkSession, servers: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_topics(servers, PARTITIONS, "shared")
    produce_numbers(servers, "shared", PARTITIONS, 0, 10)
    member = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "members",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe(["shared"])
    try:
        wait_for(lambda: member.poll(0.1) is not None, lambda: "the member reads nothing")
        member.commit(
            offsets=[TopicPartition("shared", 0, 2), TopicPartition("shared", 1, 3)],
            asynchronous=False,
        )
        query = Query(spark, servers, "shared", "members", tmp_path)
        query.drain()
        assert query.numbers() == list(range(10))
        options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": "shared",
            "groupId": "members",
            "startingOffsets": "earliest",
        }
        reader = StreamReader(source_options(options, streaming=True))
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        with caplog.at_level(logging.WARNING, logger="penstock.spark.source.stream"):
            reader.latestOffset(end, ReadAllAvailable())
        reader.stop()
        assert "not committed to group members: UNKNOWN_MEMBER_ID" in caplog.text
        assert "set groupId to a group that no consumer joins" in caplog.text
        assert committed(servers, "members", "shared") == {0: 2, 1: 3}
    finally:
        member.close()


@pytest.mark.parametrize("group", ["", "  "])
def test_a_group_without_a_name_is_refused(
    spark: SparkSession, servers: str, tmp_path: Path, group: str
) -> None:
    with pytest.raises(Exception, match="the option groupId is empty: set it to the group"):
        Query(spark, servers, "any", group, tmp_path).drain()
