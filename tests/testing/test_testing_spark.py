"""Spark reads and writes topics of a test cluster with the options of `ClientConfigs`."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

import penstock.spark
from penstock.testing.clients import ClientConfigs
from penstock.testing.cluster import ProcessCluster


@pytest.mark.more
@pytest.mark.xdist_group("spark")
def test_spark_copies_a_topic() -> None:
    with ProcessCluster() as cluster:
        source, sink = cluster.create_topic(), cluster.create_topic()
        clients = ClientConfigs(cluster.bootstrap_servers, "unused")
        producer = Producer(clients.confluent.producer())
        producer.produce(source, b"one")
        assert producer.flush(30) == 0
        spark = penstock.spark.session()
        records = spark.read.format("penstock").options(**clients.spark.source(source)).load()
        values = records.selectExpr("value")
        values.write.format("penstock").options(**clients.spark.sink(sink)).mode("append").save()
        copied = spark.read.format("penstock").options(**clients.spark.source(sink)).load()
        assert [bytes(row.value) for row in copied.collect()] == [b"one"]
