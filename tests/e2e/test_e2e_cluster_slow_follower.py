"""A paused follower (SIGSTOP) leaves the ISR after replica.lag.time.max.ms, and rejoins after it
resumes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.client.client import Client
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")


def produce(cluster: PenstockCluster, value: bytes) -> float:
    """Produce with acks=all and return the time until the acknowledgement."""

    async def work(client: Client) -> float:
        begun = time.monotonic()
        async with client.producer() as producer:
            await (await producer.send("slow", value, partition=0))
        return time.monotonic() - begun

    return cluster.ask(work)


def test_a_paused_follower_leaves_and_rejoins_the_isr(tmp_path: Path) -> None:
    with running(
        PenstockCluster(tmp_path, "replica.lag.time.max.ms=1500", controllers=1)
    ) as cluster:
        cluster.create_topic("slow", [[1, 2, 3]], min_insync_replicas="2")
        cluster.wait_partition("slow", lambda partition: len(partition.isr) == 3)
        cluster.nodes("pause", "3")
        assert cluster.list()[2]["state"] == "paused"
        waited = produce(cluster, b"waits for it to leave")
        assert waited > 0.5
        cluster.wait_partition("slow", lambda partition: sorted(partition.isr) == [1, 2])
        assert produce(cluster, b"waits no more") < 1.0
        cluster.nodes("resume", "3")
        cluster.wait_partition("slow", lambda partition: len(partition.isr) == 3)
