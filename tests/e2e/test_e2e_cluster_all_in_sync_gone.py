"""A partition without in-sync replicas is offline until its last leader returns. With unclean
election another replica leads; records that it does not have are lost, and the log says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.ids import TopicPartition
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "fragile"


def produce(cluster: PenstockCluster, *values: bytes) -> None:
    async def work(client: Client) -> None:
        async with client.producer() as producer:
            for value in values:
                await (await producer.send(TOPIC, value, partition=0))

    cluster.ask(work)


def read(cluster: PenstockCluster) -> list[bytes | None]:
    async def work(client: Client) -> list[bytes | None]:
        place = TopicPartition(TOPIC, 0)
        async with client.consumer() as consumer:
            await consumer.assign({place: BEGINNING})
            end = (await consumer.end_offsets())[place]
            found: list[bytes | None] = []
            while consumer.positions[place] < end:
                found += [record.value for record in await consumer.poll()]
            return found

    return cluster.ask(work)


def lose_all_in_sync(cluster: PenstockCluster, unclean: str) -> None:
    """Kill broker 2, which then misses a record; then kill broker 1, the only in-sync replica."""
    cluster.create_topic(
        TOPIC, [[1, 2]], min_insync_replicas="1", unclean_leader_election_enable=unclean
    )
    cluster.wait_partition(TOPIC, lambda partition: len(partition.isr) == 2)
    produce(cluster, b"both have it")
    cluster.nodes("kill", "2")
    cluster.wait_partition(TOPIC, lambda partition: partition.isr == (1,))
    produce(cluster, b"one has it")
    cluster.nodes("kill", "1")
    cluster.wait_partition(TOPIC, lambda partition: partition.leader == -1)


def test_without_unclean_election_the_partition_waits_for_its_last_leader(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path, controllers=1)) as cluster:
        lose_all_in_sync(cluster, unclean="false")
        cluster.nodes("restart", "2")
        offline = cluster.partition(TOPIC)
        assert (offline.leader, offline.isr) == (-1, ())
        described = cluster.command(
            "topics", "describe", "--offline", "--bootstrap-server", cluster.bootstrap
        )
        assert f"\tTopic: {TOPIC}\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: \t" in described
        cluster.nodes("restart", "1")
        cluster.wait_partition(
            TOPIC, lambda partition: partition.leader == 1 and len(partition.isr) == 2
        )
        assert read(cluster) == [b"both have it", b"one has it"]


def test_with_unclean_election_another_replica_leads_and_the_loss_is_logged(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path, controllers=1)) as cluster:
        lose_all_in_sync(cluster, unclean="true")
        cluster.nodes("restart", "2")
        cluster.wait_partition(TOPIC, lambda partition: partition.leader == 2)
        assert read(cluster) == [b"both have it"]
        produce(cluster, b"written after")
        cluster.nodes("restart", "1")
        cluster.wait_partition(TOPIC, lambda partition: sorted(partition.isr) == [1, 2])
        assert read(cluster) == [b"both have it", b"written after"]
        assert "unclean" in "".join(cluster.log_of(node) for node in (2, 101)).lower()


def test_elect_leaders_can_elect_uncleanly(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path, controllers=1)) as cluster:
        lose_all_in_sync(cluster, unclean="false")
        cluster.nodes("restart", "2")
        elected = cluster.command(
            "elect-leaders",
            "--unclean",
            "--yes",
            "--topic",
            TOPIC,
            "--bootstrap-server",
            cluster.bootstrap,
        )
        assert elected == f"Elected leaders of {TOPIC}-0.\n"
        cluster.wait_partition(TOPIC, lambda partition: partition.leader == 2)
        assert read(cluster) == [b"both have it"]
