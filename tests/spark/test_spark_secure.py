"""Spark reads and writes a secure cluster, and shows no secret: neither in plans nor in progress,
errors and logs."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

import penstock
from penstock.client.servers import Servers
from penstock.spark.sql import query_topics, sample_topic
from tests.spark.live import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def cluster() -> Iterator[penstock.Cluster]:
    with penstock.Cluster({"num.partitions": "1"}, secure=True) as running:
        yield running


def options_of(cluster: penstock.Cluster, **changed: str) -> dict[str, str]:
    settings = {f"kafka.{name}": value for name, value in cluster.access.java().items()}
    return {**settings, **changed}


def shown(frame: Any) -> str:
    """Return all that explain prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        for mode in ("simple", "extended", "formatted", "cost"):
            frame.explain(mode=mode)
    return output.getvalue()


def consumed(cluster: penstock.Cluster, topic: str, count: int) -> list[bytes]:
    group = {"group.id": "check", "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.access.librdkafka(), **group})
    try:
        consumer.subscribe([topic])
        return sorted(message.value() or b"" for message in consumer.consume(count, timeout=60))
    finally:
        consumer.close()


def test_batch_stream_and_sink_over_tls_and_scram(
    spark: SparkSession,
    cluster: penstock.Cluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    password = cluster.access.password
    assert len(password) > 20
    options = options_of(cluster)
    producer = Producer(cluster.access.librdkafka())
    for number in range(3):
        producer.produce("secure-in", str(number))
    assert producer.flush(60) == 0
    texts = []

    batch = spark.read.format("penstock").options(**options, subscribe="secure-in").load()
    texts.append(shown(batch))
    assert sorted(bytes(row.value) for row in batch.collect()) == [b"0", b"1", b"2"]
    texts += [str(batch), repr(batch), batch._jdf.queryExecution().toString()]

    stream = (
        spark.readStream.format("penstock")
        .options(**options, subscribe="secure-in", startingOffsets="earliest")
        .load()
    )
    texts.append(shown(stream))
    query = (
        stream.select("value")
        .writeStream.format("penstock")
        .options(**options, topic="secure-out", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    texts.append(str(query.lastProgress))
    texts += [progress.json for progress in query.recentProgress]
    texts.append(str(query.status))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        query.explain(extended=True)
    texts.append(output.getvalue())
    assert consumed(cluster, "secure-out", 3) == [b"0", b"1", b"2"]
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert files

    jaas = options["kafka.sasl.jaas.config"]
    wrong = options_of(cluster, **{"kafka.sasl.jaas.config": jaas.replace(password, "w-secret")})
    mistakes = {
        "a wrong password": wrong,
        "a login that cannot be parsed": {
            **options,
            "kafka.sasl.jaas.config": jaas.replace('";', ""),
        },
        "an unknown option": {**options, "kafka.sasl.nonsense": password},
    }
    for name, given in mistakes.items():
        frame = spark.read.format("penstock")
        for key, value in {**given, "subscribe": "secure-in"}.items():
            frame = frame.option(key, value)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's many classes
            frame.load().collect()
        texts.append(str(raised.value))
        assert "penstock" in str(raised.value).lower(), name
    texts += list(capfd.readouterr())
    for text in texts:
        assert password not in text
        assert "w-secret" not in text
    assert not [data for data in files if password.encode() in data]


def test_sql_over_topics_uses_the_login_of_the_client(
    spark: SparkSession, cluster: penstock.Cluster
) -> None:
    """`penstock sql` passes the settings of --command-config with the servers."""
    servers = Servers(cluster.bootstrap_servers, cluster.access.java())
    producer = Producer(cluster.access.librdkafka())
    producer.produce("secure-sql", b'{"n": 41}')
    assert producer.flush(60) == 0
    samples = {"secure-sql": sample_topic(servers, "secure-sql")}
    query = "select n + 1 as found from topic('secure-sql')"
    result = query_topics(spark, query, servers, samples)
    assert [row.found for row in result.collect()] == [42]
    assert cluster.access.password not in shown(result)
