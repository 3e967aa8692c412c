"""With two of three brokers down and min.insync.replicas 2, committed records are readable, no
write is acknowledged, and the cluster recovers afterwards (rule 2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "careful"


def produce(cluster: PenstockCluster, value: str, timeout_ms: int = 30_000) -> KafkaError | None:
    """Produce one record and return its error, if any."""
    outcome: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "message.timeout.ms": timeout_ms,
            "request.timeout.ms": min(timeout_ms, 2_000),
            "retries": 0 if timeout_ms < 30_000 else 1_000,
            "log_level": 0,
        }
    )
    producer.produce(
        TOPIC, value, partition=0, on_delivery=lambda error, _message: outcome.append(error)
    )
    producer.flush(60)
    (error,) = outcome
    return error


def read(cluster: PenstockCluster, count: int) -> list[str]:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        messages = consumer.consume(count, timeout=30)
        assert not [message.error() for message in messages if message.error()]
        return [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()


def test_with_separate_controllers_writes_are_refused_and_reads_succeed(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path, controllers=3)) as cluster:
        cluster.create_topic(TOPIC, [[1, 2, 3]], min_insync_replicas="2")
        assert produce(cluster, "committed") is None
        cluster.nodes("kill", "2", "3")
        cluster.wait_partition(TOPIC, lambda partition: partition.isr == (1,))
        error = produce(cluster, "refused", timeout_ms=5_000)
        assert error is not None
        assert error.code() == KafkaError.NOT_ENOUGH_REPLICAS
        assert read(cluster, 1) == ["committed"]
        cluster.nodes("restart", "2")
        cluster.wait_partition(TOPIC, lambda partition: 2 in partition.isr)
        assert produce(cluster, "again") is None
        assert read(cluster, 2) == ["committed", "again"]


def test_with_combined_nodes_writes_time_out_and_reads_succeed_until_it_recovers(
    tmp_path: Path,
) -> None:
    with running(PenstockCluster(tmp_path)) as cluster:
        cluster.create_topic(TOPIC, [[1, 2, 3]], min_insync_replicas="2")
        assert produce(cluster, "committed") is None
        cluster.nodes("kill", "2", "3")
        error = produce(cluster, "unanswered", timeout_ms=4_000)
        assert error is not None
        assert error.code() in (
            KafkaError._MSG_TIMED_OUT,
            KafkaError.REQUEST_TIMED_OUT,
            KafkaError._TIMED_OUT,
            KafkaError.NOT_ENOUGH_REPLICAS,
            KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        )
        assert read(cluster, 1) == ["committed"]
        cluster.nodes("restart", "3")
        cluster.wait_partition(TOPIC, lambda partition: {1, 3} <= set(partition.isr))
        assert produce(cluster, "again") is None
        # A record without a response may be in the log, at most once, in order.
        healed = read(cluster, 2)
        assert healed in (["committed", "again"], ["committed", "unanswered"])
        if healed[1] == "unanswered":
            assert read(cluster, 3) == ["committed", "unanswered", "again"]
