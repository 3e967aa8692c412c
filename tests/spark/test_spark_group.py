"""The option groupId: a query commits its offsets to the group after each batch, and Kafka's tools
show its lag."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import penstock
from penstock.client.admin.groups import GroupAdmin
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.options import source_options
from penstock.spark.source import group_commits
from penstock.spark.source.stream import StreamReader
from tests.e2e.penstock_process import COMMAND
from tests.spark.live import create_topics, produce_numbers, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2
TIMEOUT_S = 120


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
        positions = consumer.committed(
            [TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30
        )
        return {
            position.partition: position.offset for position in positions if position.offset >= 0
        }
    finally:
        consumer.close()


def wait_for(condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.05)


class Query:
    """A streaming query with groupId. `batches` has the numbers of each batch, and the offsets that
    were committed while it ran."""

    def __init__(
        self,
        spark: SparkSession,
        servers: str,
        topic: str,
        group: str,
        checkpoint: Path,
        **options: str,
    ) -> None:
        self.batches: list[tuple[list[int], dict[int, int]]] = []
        self._servers, self._topic, self._group = servers, topic, group
        source = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "groupId": group,
            "startingOffsets": "earliest",
            **options,
        }
        stream = spark.readStream.format("penstock").options(**source).load()
        self._writer = stream.writeStream.foreachBatch(self._keep).option(
            "checkpointLocation", str(checkpoint)
        )

    def _keep(self, rows: DataFrame, _batch_id: int) -> None:
        numbers = sorted(int(row.value) for row in rows.select("value").collect())
        self.batches.append((numbers, committed(self._servers, self._group, self._topic)))

    def numbers(self) -> list[int]:
        return [number for numbers, _committed in self.batches for number in numbers]

    def drain(self) -> None:
        assert self._writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)

    def start(self) -> StreamingQuery:
        return self._writer.trigger(processingTime="0 seconds").start()


def lags(servers: str, group: str) -> dict[int, int]:
    """Return the lag that both `penstock groups describe` and `kafka-consumer-groups.sh` report."""
    described = json.loads(
        output_of(
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
    ours = {partition["partition"]: partition["lag"] for partition in described["partitions"]}
    table = output_of(
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


def output_of(command: Path, *arguments: str) -> str:
    return subprocess.run(
        [str(command), *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=True,
    ).stdout


def test_each_batch_is_committed_and_a_restart_resumes(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create_topics(servers, PARTITIONS, "orders")
    produce_numbers(servers, "orders", PARTITIONS, 0, 100)
    first = Query(spark, servers, "orders", "readers", tmp_path, maxOffsetsPerTrigger="60")
    first.drain()
    assert [(len(numbers), at) for numbers, at in first.batches] == [(60, {}), (40, {0: 30, 1: 30})]
    assert committed(servers, "readers", "orders") == {0: 50, 1: 50}
    assert lags(servers, "readers") == {0: 0, 1: 0}
    produce_numbers(servers, "orders", PARTITIONS, 100, 30)
    assert lags(servers, "readers") == {0: 15, 1: 15}
    second = Query(spark, servers, "orders", "readers", tmp_path)
    running = second.start()
    try:
        wait_for(
            lambda: committed(servers, "readers", "orders") == {0: 65, 1: 65},
            lambda: f"{second.batches}",
        )
        produce_numbers(servers, "orders", PARTITIONS, 130, 20)
        # The query has caught up, and its last batch is committed.
        wait_for(
            lambda: committed(servers, "readers", "orders") == {0: 75, 1: 75},
            lambda: f"{second.batches}",
        )
    finally:
        running.stop()
    assert first.numbers() + second.numbers() == list(range(150))
    assert lags(servers, "readers") == {0: 0, 1: 0}


def test_restart_commits_what_the_last_run_did_not(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create_topics(servers, PARTITIONS, "uncommitted")
    produce_numbers(servers, "uncommitted", PARTITIONS, 0, 10)
    Query(spark, servers, "uncommitted", "restarted", tmp_path).drain()
    output_of(COMMAND, "groups", "delete", "restarted", "--yes", "--bootstrap-server", servers)
    assert committed(servers, "restarted", "uncommitted") == {}
    restarted = Query(spark, servers, "uncommitted", "restarted", tmp_path)
    restarted.drain()
    assert (restarted.numbers(), committed(servers, "restarted", "uncommitted")) == (
        [],
        {0: 5, 1: 5},
    )


def test_query_continues_if_the_group_has_members(
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
        wait_for(lambda: member.poll(0.1) is not None, lambda: "the member received no record")
        member.commit(
            offsets=[TopicPartition("shared", 0, 2), TopicPartition("shared", 1, 3)],
            asynchronous=False,
        )
        query = Query(spark, servers, "shared", "members", tmp_path)
        query.drain()
        assert query.numbers() == list(range(10))
        reader = stream_reader(servers, "shared", "members")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        with caplog.at_level(logging.WARNING, logger="penstock.spark.source.group_commits"):
            reader.latestOffset(end, ReadAllAvailable())
        reader.stop()
        assert "not committed to group members: UNKNOWN_MEMBER_ID" in caplog.text
        assert "set groupId to a group that no consumer joins" in caplog.text
        assert committed(servers, "members", "shared") == {0: 2, 1: 3}
    finally:
        member.close()


def stream_reader(servers: str, topic: str, group: str) -> StreamReader:
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "groupId": group,
        "startingOffsets": "earliest",
    }
    return StreamReader(source_options(options, streaming=True))


@pytest.mark.parametrize(
    "failure",
    [
        None,
        KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator"),
        KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"),
    ],
    ids=["slow", "retriable", "refused"],
)
def test_failed_commit_is_repeated_and_does_not_stall_the_trigger(
    servers: str, monkeypatch: pytest.MonkeyPatch, failure: KafkaError | None
) -> None:
    topic = group = f"commits-{failure.code.name.lower() if failure else 'slow'}"
    create_topics(servers, PARTITIONS, topic)
    produce_numbers(servers, topic, PARTITIONS, 0, 10)
    monkeypatch.setattr(group_commits, "_REFUSED_RETRY_S", 0.1)
    available = threading.Event()
    commit_offsets = GroupAdmin.commit_offsets

    async def commit(admin: GroupAdmin, group_id: str, *rest: Any) -> None:
        while not available.is_set():
            if failure is not None:
                raise failure
            await asyncio.sleep(0.01)
        await commit_offsets(admin, group_id, *rest)

    monkeypatch.setattr(GroupAdmin, "commit_offsets", commit)
    reader = stream_reader(servers, topic, group)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    # A trigger that waited for the group would not return: the group is not available until all
    # of them are done.
    for first in range(10, 30, 2):
        produced = produce_numbers(servers, topic, PARTITIONS, first, 2)
        end = reader.latestOffset(end, ReadAllAvailable())
    assert committed(servers, group, topic) == {}
    available.set()
    # The last batch is not finished, as far as the source knows.
    finished = dict.fromkeys(range(PARTITIONS), produced // 2 - 1)
    wait_for(
        lambda: committed(servers, group, topic) == finished,
        lambda: f"{committed(servers, group, topic)}",
    )
    reader.latestOffset(end, ReadAllAvailable())
    assert committed(servers, group, topic) == {0: 15, 1: 15}, "a trigger waits for its commit"
    reader.stop()


@pytest.mark.parametrize("group", ["", "  "])
def test_empty_group_id_is_refused(
    spark: SparkSession, servers: str, tmp_path: Path, group: str
) -> None:
    with pytest.raises(Exception, match="the option groupId is empty: set it to the group"):
        Query(spark, servers, "any", group, tmp_path).drain()
