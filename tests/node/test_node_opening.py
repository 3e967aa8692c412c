"""A starting broker opens its logs and creates its partitions while the cluster goes on: the
metadata changes, and the broker may be told to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.admin.configs import ConfigResourceType
from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.checkpoint import parse_offsets
from penstock.log.store import LogStore
from penstock.node.replication.replicas import Replicas
from tests.node.test_node_reassignment import FIRST, Cluster, run

COUNT = 40
LAST = TopicPartition("t", COUNT - 1)


async def create_topic(cluster: Cluster) -> None:
    """Create a topic with records in all of its partitions, and wait until broker 2 has them."""
    await cluster.client.admin.create_topic("t", assignments=[[1, 2]] * COUNT)
    async with cluster.client.producer() as producer:
        for index in range(COUNT):
            await (await producer.send("t", b"x", partition=index))


def test_config_that_is_deleted_meanwhile_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log was opened with retention.ms=1000, which would delete acknowledged records."""
    open_logs = LogStore.open

    async def main(cluster: Cluster) -> None:
        admin, second = cluster.client.admin, cluster.nodes["n2"]
        await admin.create_topic("t", assignments=[[1, 2]], configs={"retention.ms": "1000"})
        await cluster.produce(b"first")
        await second.stop(within_s=10)
        opened = asyncio.Event()
        altered = asyncio.Event()

        async def open_slowly(store: LogStore, config_of: Any) -> None:
            await open_logs(store, config_of)
            opened.set()
            await altered.wait()

        monkeypatch.setattr(LogStore, "open", open_slowly)
        second.restart()
        await opened.wait()
        await admin.alter_configs(ConfigResourceType.TOPIC, "t", delete=["retention.ms"])
        # The broker has the change before it creates the partition.
        await asyncio.sleep(2.0)
        altered.set()
        await cluster.until(lambda: 2 in cluster.state().isr)
        replica = cluster.processes[2].replicas.partitions[FIRST]
        assert replica.config.retention_ms == 7 * 24 * 3600 * 1000

    run(main)


def test_high_watermarks_are_kept_for_partitions_that_do_not_exist_yet() -> None:
    async def main(cluster: Cluster) -> None:
        await create_topic(cluster)
        second = cluster.nodes["n2"]
        await second.stop(within_s=20)
        second.machine.drive.heal()
        second.machine.restart()
        # The first partition's log is gone, but listed in the checkpoint, which is saved at once.
        disk = second.machine.world.disk
        disk.remove_tree("/d0/t-0")
        disk.sync_dir("/d0")
        second.start()
        await cluster.until(lambda: 2 in cluster.state(FIRST).isr, 60)
        await asyncio.sleep(10.0)
        saved = parse_offsets(disk.read(f"/d0/{names.HIGH_WATERMARKS}"))
        assert [saved.get(TopicPartition("t", index)) for index in range(1, COUNT)] == [1] * (
            COUNT - 1
        )

    run(main)


def test_broker_that_is_stopped_while_it_creates_partitions_shuts_down_cleanly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = Replicas._create

    async def main(cluster: Cluster) -> None:
        await create_topic(cluster)
        second = cluster.nodes["n2"]
        await second.stop(within_s=20)
        created = 0

        def create_and_stop(replicas: Replicas, *args: Any) -> Any:
            nonlocal created
            created += replicas._node_id == 2
            if created == COUNT // 2:
                process = second._process
                assert process is not None
                asyncio.get_running_loop().call_soon(process.cancel)
            return create(replicas, *args)

        monkeypatch.setattr(Replicas, "_create", create_and_stop)
        second.restart()
        assert second._process is not None
        await asyncio.wait([second._process])
        assert COUNT // 2 <= created < COUNT
        disk = second.machine.world.disk
        assert disk.exists(f"/d0/{names.CLEAN_SHUTDOWN}")
        saved = parse_offsets(disk.read(f"/d0/{names.HIGH_WATERMARKS}"))
        assert saved[FIRST] == saved[LAST] == 1

    run(main)
