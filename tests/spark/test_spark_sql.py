"""SQL over topics: topics of a query, column names, samples, and results with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

import penstock
from penstock.errors import KafkaError
from penstock.spark.sql import (
    SAMPLE_RECORDS,
    check_with_parser,
    field_names,
    query_topics,
    sample_topic,
    sample_values,
)
from penstock.spark.sql_text import SqlTextError, topics_in
from tests.spark.live import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_field_names_do_not_collide() -> None:
    assert field_names(
        ["id", "Id", "Timestamp", "json_key", "key"], ["key", "value", "timestamp"]
    ) == {
        "id": "id",
        "Id": "json_Id",
        "Timestamp": "json_Timestamp",
        "json_key": "json_key",
        "key": "json_json_key",
    }


def test_sample_has_json_objects_and_is_bounded() -> None:
    values = [b'{"a": 1}', b"[1]", b"\xff", None, b"x"]
    sample = sample_values("orders", iter(values))
    assert (sample.records, sample.objects) == (5, ('{"a": 1}',))
    assert sample_values("orders", iter([b"{}"] * (SAMPLE_RECORDS + 1))).records == SAMPLE_RECORDS
    assert sample_values("orders", iter([b" " * 5_000_000, b"{}"])).records == 1


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "2"}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(20):
            value = f'{{"id": {number}, "customer": {{"name": "c{number % 2}"}}, "timestamp": "t"}}'
            producer.produce("orders", value=value, partition=number % 2)
        producer.produce("orders", value="nonsense", partition=0)
        producer.produce("text", value="words", partition=0)
        producer.flush()
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


def query(spark: SparkSession, servers: str, text: str) -> list[tuple[object, ...]]:
    samples = {topic: sample_topic(servers, topic) for topic in topics_in(text)}
    return [tuple(row) for row in query_topics(spark, text, servers, samples).collect()]


def test_json_fields_are_columns(spark: SparkSession, servers: str) -> None:
    text = (
        "select id, customer.name, json_timestamp, partition from topic('orders') where "
        "partition = 1 and offset < 2 order by id"
    )
    assert query(spark, servers, text) == [(1, "c1", "t", 1), (3, "c1", "t", 1)]
    # Two filters on one topic must not narrow each other.
    two_filters = """with o as (select * from topic('orders'))
        select count(*) from o where partition = 0 union all select count(*) from o
        union all select count(*) from topic('orders') where partition = 1"""
    assert sorted(query(spark, servers, two_filters)) == [(10,), (11,), (21,)]


def test_topic_without_json_has_the_columns_of_the_source(
    spark: SparkSession, servers: str
) -> None:
    assert query(spark, servers, "select cast(value as string), offset from topic('text')") == [
        ("words", 0)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "select id,\n  amount amount amount from topic('orders')",
            "Syntax error at or near 'amount'.* at line 2, column 17",
        ),
        ("select * from orders", r"there is no table orders: write topic\('orders'\) for a topic"),
        ("select 1 where exists (select 1 from missing)", "there is no table missing"),
    ],
)
def test_parser_refuses_a_query_without_running_it(
    spark: SparkSession, text: str, message: str
) -> None:
    with pytest.raises(SqlTextError, match=message):
        check_with_parser(spark._jvm, text)


@pytest.mark.parametrize(
    "text",
    [
        "select * from topic('orders') o join topic(x) tablesample (5 rows) x using (id)",
        "with o as (select * from topic('orders')), p as (select * from o) select * from p",
        "select * from parquet.`/tmp/orders`",
        "select * from values (1), (2) as t(a) where a in (select a from t)",
        "show tables",
    ],
)
def test_parser_accepts_queries(spark: SparkSession, text: str) -> None:
    check_with_parser(spark._jvm, text)


def test_missing_topic_is_an_error(servers: str) -> None:
    with pytest.raises(KafkaError, match="topic nowhere does not exist: create it"):
        sample_topic(servers, "nowhere")
