"""Brokers in three racks: each partition has a replica in every rack, a cluster survives the loss
of a rack, and consumers fetch from the follower in their rack (KIP-392)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from penstock.client.client import Client
from penstock.client.metadata import TopicInfo
from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import PenstockCluster, wait_for
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
SELECTOR = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PenstockCluster]:
    with running(PenstockCluster(tmp_path, brokers=6, controllers=1, racks="a,b,c")) as six_brokers:
        yield six_brokers


def test_replicas_are_spread_over_racks_and_one_rack_may_fail(cluster: PenstockCluster) -> None:
    async def create(client: Client) -> TopicInfo:
        await client.admin.create_topic("spread", partitions=12, replication_factor=3)
        (topic,) = await client.admin.describe_topics(["spread"])
        return topic

    topic = cluster.ask(create)
    for partition in topic.partitions:
        assert sorted(RACKS[node] for node in partition.replicas) == ["a", "b", "c"]
    assert sorted(partition.leader for partition in topic.partitions) == sorted([*RACKS] * 2)
    with NumberedLoad(cluster.bootstrap, "lasting") as load:
        load.start(3, {"min.insync.replicas": "2"})
        load.wait_acknowledged(1_000)
        cluster.nodes("kill", "1", "4")
        for index in range(PARTITIONS):
            cluster.wait_partition(
                "lasting",
                lambda partition: partition.leader not in (-1, 1, 4) and len(partition.isr) == 2,
                index=index,
            )
        load.wait_acknowledged(1_000)
        sent = load.finish()
    check(load, sent, read_back(cluster.bootstrap, "lasting", sent))


def test_a_consumer_fetches_from_the_follower_in_its_rack(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path, SELECTOR, racks="a,b,c")) as cluster:
        cluster.create_topic("near", [[1, 2, 3]])
        seen: list[dict[str, Any]] = []
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "near",
                "enable.auto.commit": False,
                "client.rack": "b",
                "statistics.interval.ms": 100,
                "stats_cb": lambda text: seen.append(json.loads(text)),
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition("near", 0, OFFSET_BEGINNING)])

            def source() -> tuple[int, int]:
                consumer.poll(0.1)
                partition = (
                    seen[-1]["topics"]["near"]["partitions"]["0"]
                    if seen and "near" in seen[-1]["topics"]
                    else {}
                )
                return partition.get("leader", -1), partition.get("broker", -1)

            wait_for(
                source, lambda found: found == (1, 2), "the broker that is read from", cluster.logs
            )
            cluster.ask(_produce)
            values: list[bytes | None] = []

            def read() -> list[bytes | None]:
                message = consumer.poll(0.2)
                if message is not None and not message.error():
                    values.append(message.value())
                return values

            assert wait_for(read, lambda found: len(found) == 3, "what was read", cluster.logs) == [
                b"0",
                b"1",
                b"2",
            ]
            assert source() == (1, 2)
        finally:
            consumer.close()


async def _produce(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(3):
            await (await producer.send("near", b"%d" % number, partition=0))
