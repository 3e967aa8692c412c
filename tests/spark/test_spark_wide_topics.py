"""Rows for 1,000 partitions are written in few requests, within three times of the time for 6.

PENSTOCK_DRILL=1 measures it on an otherwise idle machine. Without it the bound is one that a busy
machine does not exceed.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.ids import TopicPartition
from penstock.protocol.messages.produce import ProduceRequest
from penstock.spark.options import ConnectionOptions, sink_options
from penstock.spark.shared_client import close_shared_clients, shared_client
from penstock.spark.sink.writer import write
from tests.e2e.penstock_process import PenstockProcess
from tests.spark.live import session

ROWS = 20_000
NARROW, WIDE = 6, 1_000
TOPICS = ("narrow", "wide")
RUNS = 5
MOST_TIMES = 3 if os.environ.get("PENSTOCK_DRILL") else 10


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = PenstockProcess(tmp_path_factory.mktemp("wide") / "node")
    try:
        process.start()
        yield process.bootstrap
        close_shared_clients()
    finally:
        process.kill()  # a clean stop syncs thousands of logs


def connection(servers: str) -> ConnectionOptions:
    return sink_options({"kafka.bootstrap.servers": servers}).connection


def create(servers: str, topic: str, partitions: int) -> None:
    with shared_client(connection(servers)) as blocking:
        blocking.call(lambda client: client.admin.create_topic(topic, partitions=partitions))


def rows() -> pa.RecordBatch:
    keys = pa.array([str(number) for number in range(ROWS)])
    return pa.record_batch([keys, pa.array(["x" * 100] * ROWS)], names=["key", "value"])


def write_rows(servers: str, topic: str, batch: pa.RecordBatch) -> float:
    options = sink_options({"kafka.bootstrap.servers": servers, "topic": topic})
    started = time.perf_counter()
    assert write(options, iter([batch])).rows == ROWS
    return time.perf_counter() - started


def count_records(servers: str, topic: str, partitions: int) -> int:
    async def latest(client: Client) -> int:
        offsets = await client.admin.list_offsets(
            dict.fromkeys((TopicPartition(topic, index) for index in range(partitions)), -1)
        )
        return sum(result.offset for result in offsets.values())

    with shared_client(connection(servers)) as blocking:
        return blocking.call(latest)


def test_a_request_has_the_batches_of_many_partitions(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(servers, "few-requests", WIDE)
    requests: list[int] = []
    call = Connection.call

    async def count(connection: Connection, request: object, *args: object, **options: object):  # type: ignore[no-untyped-def]
        if isinstance(request, ProduceRequest):
            requests.append(sum(len(topic.partition_data) for topic in request.topic_data))
        return await call(connection, request, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "call", count)
    write_rows(servers, "few-requests", rows())
    assert sum(requests) == WIDE
    assert len(requests) <= WIDE / 10
    assert count_records(servers, "few-requests", WIDE) == ROWS


@pytest.mark.more
@pytest.mark.xdist_group("spark")
def test_spark_takes_not_much_longer_for_a_wide_topic(servers: str) -> None:
    rows = session().range(ROWS).selectExpr("string(id) as key", "repeat('x', 100) as value")

    def write_topic(topic: str) -> float:
        started = time.perf_counter()
        rows.write.format("penstock").mode("append").options(
            **{"kafka.bootstrap.servers": servers, "topic": topic}
        ).save()
        return time.perf_counter() - started

    for topic, partitions in (("narrow", NARROW), ("wide", WIDE)):
        create(servers, topic, partitions)
        write_topic(topic)
    took_s = {topic: statistics.median(write_topic(topic) for _ in range(RUNS)) for topic in TOPICS}
    assert took_s["wide"] < MOST_TIMES * took_s["narrow"], took_s
    assert count_records(servers, "wide", WIDE) == (RUNS + 1) * ROWS
