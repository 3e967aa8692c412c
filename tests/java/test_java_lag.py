"""The lag of groups on the page of metrics is that of Apache Kafka's kafka-consumer-groups.sh.

Run by `make test-java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running
from tests.java.kafka_tools import Tools
from tests.metrics.scrape import scrape

pytestmark = pytest.mark.java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
# (topic, partition) -> records, and the committed offset.
WORKLOAD = {
    ("replicated", 0): (50, 10),
    ("replicated", 1): (7, 7),
    ("replicated", 2): (3, 0),
    ("alone", 0): (20, 5),
    ("alone", 1): (20, 20),
    ("alone", 2): (1, 0),
}
Lags = dict[tuple[str, int], int]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    directory: Path = tmp_path_factory.mktemp("lag")
    with running(PenstockCluster(directory)) as cluster:
        cluster.create_topic("replicated", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        cluster.create_topic("alone", [[1], [2], [3]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for (topic, partition), (count, _committed) in WORKLOAD.items():
            for _ in range(count):
                producer.produce(topic, b"x", partition=partition)
        assert producer.flush(60) == 0
        yield cluster


def lags_of_kafka(cluster: PenstockCluster, group: str) -> Lags:
    shown = Tools(cluster.bootstrap)(GROUPS, "--describe", "--group", group)
    rows = [line.split() for line in shown.splitlines() if line.startswith(group)]
    return {(row[1], int(row[2])): int(row[5]) for row in rows}


def lags_of_the_page(cluster: PenstockCluster, group: str) -> Lags:
    lags: Lags = {}
    for node in cluster.list():
        for (name, pairs), lag in scrape(node["metrics"], "?partitions=1").items():
            labels = dict(pairs)
            if name == "penstock_group_partition_lag" and labels["group"] == group:
                key = labels["topic"], int(labels["partition"])
                assert key not in lags, "two coordinators"
                lags[key] = int(lag)
    return lags


@pytest.mark.parametrize("group", ["stopped", "other"])
def test_lag_agrees_with_kafkas_tool_and_with_the_workload(
    cluster: PenstockCluster, group: str
) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    offsets = [
        Position(topic, partition, committed)
        for (topic, partition), (_count, committed) in WORKLOAD.items()
    ]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    expected = {key: count - committed for key, (count, committed) in WORKLOAD.items()}
    assert lags_of_the_page(cluster, group) == expected
    assert lags_of_kafka(cluster, group) == expected
