"""Pipelines with Spark: records, dead letters, late rows, failures, and validation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import penstock
from penstock.spark.pipeline import parse_json
from penstock.spark.pipeline.application import Application, load_application
from penstock.spark.pipeline.checkpoint import read_checkpoints
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.queries import RunningQueries
from penstock.spark.pipeline.run import PipelineRun, validate
from tests.spark.live import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
from pyspark.sql import functions as F
from penstock.spark.pipeline import parse_json

FAIL_ON_LATE_ROWS = True

def totals(records):
    events = records.where("reason IS NULL").select("event.*").withWatermark("at", "10 seconds")
    windows = events.groupBy(F.window("at", "10 seconds")).agg(F.sum("amount").alias("total"))
    return windows.select(F.to_json(F.struct("total")).alias("value"))

def misspelt(records):
    return records.select(F.col("amuont").alias("value"))

def unclosed(records):
    return records.groupBy("key").agg(F.max("value").alias("value"))

def failing(records):
    return records.select(F.col("value").cast("string").cast("int").cast("string").alias("value"))

def build(pipeline):
    rows = pipeline.read(pipeline.settings.get("from", "orders"))
    records = parse_json(rows, "id STRING NOT NULL, amount LONG, at TIMESTAMP")
    step = pipeline.settings.get("step")
    if step == "nothing":
        return None
    if step == "updated":
        return {"other": pipeline.write(totals(records), "other").outputMode("update")}
    if step:
        return {"other": pipeline.write(globals()[step](records), "other")}
    return {
        "totals": pipeline.write(totals(records), "totals"),
        "bad": pipeline.dead_letters(records.where("reason IS NOT NULL"), "dead"),
    }
"""
AT = "2026-01-01T00:{}Z"


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "1"}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def application(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Application:
    assert spark is not None
    path = tmp_path_factory.mktemp("pipeline") / "orders_pipeline.py"
    path.write_text(PIPELINE)
    return load_application(path)


def produce(servers: str, *values: bytes | None, topic: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value=value, key=b"k", headers=[("source", b"test")])
    producer.flush()


def order(number: int, at: str) -> bytes:
    return json.dumps({"id": str(number), "amount": number, "at": AT.format(at)}).encode()


def consume(servers: str, topic: str, count: int, timeout_s: float = 30) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=timeout_s)
    consumer.close()
    return messages


def forget_last_commit(query: Path) -> None:
    """Make Spark repeat the last batch, as after a crash before the end of that batch."""
    commits = query / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()


def drain(queries: RunningQueries) -> RunningQueries:
    try:
        while queries.poll():
            time.sleep(0.1)
        queries.poll()
    finally:
        queries.stop()
    return queries


def test_records_dead_letters_and_late_rows(
    spark: SparkSession, servers: str, application: Application, tmp_path: Path
) -> None:
    run = PipelineRun(application.path, servers, checkpoint=str(tmp_path), once=True)
    bad = (
        b"nonsense",
        b'{"id": "3", "amount": "many"}',
        b'{"amount": 1}',
        b"[1]",
        None,
        b"",
        b" \n",
        b"\xff\xc3",
    )
    produce(servers, order(1, "00:01"), order(2, "00:09"), *bad, order(4, "01:00"))
    queries = drain(run.start(spark, application))
    assert queries.progress["bad"].dead_letters == 8
    assert queries.progress["bad"].lag == {"orders": 0}
    assert queries.progress["totals"].late_rows == 0
    assert queries.progress["totals"].state_rows == 1
    assert queries.progress["totals"].watermark == "2026-01-01T00:00:50.000Z"
    assert [message.value() for message in consume(servers, "totals", 1)] == [b'{"total":3}']
    dead = consume(servers, "dead", 8)
    assert [message.value() for message in dead] == list(bad)
    assert dead[1].headers() == [
        ("source", b"test"),
        ("reason", b"column amount is not of type bigint: many"),
        ("topic", b"orders"),
        ("partition", b"0"),
        ("offset", b"3"),
    ]
    assert [dict(message.headers())["reason"] for message in dead] == [
        b"the value is not a JSON object: nonsense",
        b"column amount is not of type bigint: many",
        b"column id is missing",
        b"the value is not a JSON object: [1]",
        b"the value is null",
        b"the value is empty",
        b"the value is empty",
        "the value is not a JSON object: \ufffd\ufffd".encode(),
    ]
    assert {query.name: list(query.offsets.values()) for query in read_checkpoints(tmp_path)} == {
        "bad": [11],
        "totals": [11],
    }

    # The next run resumes from the checkpoint, and FAIL_ON_LATE_ROWS fails it.
    produce(servers, order(5, "00:02"))
    with pytest.raises(
        PipelineError,
        match="query totals dropped 1 rows that arrived later than its watermark: raise the delay",
    ):
        drain(run.start(spark, application))


def test_update_mode_writes_each_change_once(
    spark: SparkSession, servers: str, application: Application, tmp_path: Path
) -> None:
    settings = {"step": "updated", "from": "updates"}
    run = PipelineRun(
        application.path, servers, checkpoint=str(tmp_path), once=True, settings=settings
    )
    assert validate(spark, application, servers, settings) == {"other": "struct<value:string>"}
    produce(servers, order(1, "00:01"), order(2, "00:09"), topic="updates")
    assert drain(run.start(spark, application)).progress["other"].rows == 2
    produce(servers, order(4, "00:08"), topic="updates")
    forget_last_commit(tmp_path / "other")
    drain(run.start(spark, application))
    values = [message.value() for message in consume(servers, "other", 3, timeout_s=5)]
    assert values == [b'{"total":3}', b'{"total":7}']


def test_values_are_parsed_once(spark: SparkSession) -> None:
    """The optimizer copies from_json to every use of a field if it can."""
    value = """binary(concat('{"id": "', id, '", "amount": 2}')) as value"""
    rows = spark.range(1, 2).selectExpr(value, "'replaced' as event")
    parsed = parse_json(rows, "id STRING NOT NULL, amount LONG, at TIMESTAMP")
    valid = parsed.where("reason IS NULL").select("event.*").groupBy("id").sum("amount")
    for result in (valid, parsed.where("reason IS NOT NULL")):
        plan = result._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count("from_json") == 1, plan
    assert [tuple(row) for row in valid.collect()] == [("1", 2)]


def test_failed_query_names_step_and_offsets(
    spark: SparkSession, servers: str, application: Application, tmp_path: Path
) -> None:
    produce(servers, b"no number")
    run = PipelineRun(
        application.path, servers, checkpoint=str(tmp_path), once=True, settings={"step": "failing"}
    )
    with pytest.raises(PipelineError) as failed:
        drain(run.start(spark, application))
    for part in (
        (
            "query other failed: step failing (orders_pipeline.py, line 19): return "
            "records.select(F.col("
        ),
        "CAST_INVALID_INPUT",
    ):
        assert part in str(failed.value)
    assert "(batch 0 reads orders-0 offsets 0 to " in str(failed.value)


def test_missing_topic_fails_a_run_with_once(
    spark: SparkSession, servers: str, application: Application, tmp_path: Path
) -> None:
    settings = {"from": "nowhere", "step": "failing"}
    with pytest.raises(
        PipelineError, match=r"query other failed: .*topic nowhere does not exist: create it"
    ):
        drain(
            PipelineRun(
                application.path, servers, checkpoint=str(tmp_path), once=True, settings=settings
            ).start(spark, application)
        )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "misspelt",
            r"step misspelt \(orders_pipeline.py, line 13\): .*`amuont` cannot be resolved",
        ),
        (
            "unclosed",
            (
                "query other cannot be started: .*not supported for streaming aggregations "
                "without watermark"
            ),
        ),
        ("nothing", "returned None: it must return a dict of query names and stream writers"),
    ],
)
def test_validation_errors(
    spark: SparkSession, application: Application, step: str, message: str
) -> None:
    with pytest.raises(PipelineError, match=message):
        validate(spark, application, "localhost:1", {"step": step})


def test_validation_needs_no_broker(spark: SparkSession, application: Application) -> None:
    schemas = validate(spark, application, "localhost:1", {})
    assert schemas["totals"] == "struct<value:string>"
