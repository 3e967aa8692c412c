"""A cluster of 3 brokers gets a fourth one under load: partitions move to it with a throttle, one
move is cancelled, and the broker is emptied again. No client request fails, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import kafka
import kafka.errors
import pytest

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import PenstockCluster, wait_for
from tests.e2e.penstock_process import running

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.more]
TOPIC = "moving"
NEW = 4
RATE = 20_000_000
SIDES = ("leader", "follower")

Targets = dict[TopicPartition, tuple[int, ...] | None]


def alter(cluster: PenstockCluster, targets: Targets) -> list[KafkaError]:
    async def work(client: Client) -> list[KafkaError]:
        errors = await client.admin.alter_partition_reassignments(targets)
        return [error for error in errors.values() if error is not None]

    return cluster.ask(work)


def ongoing(cluster: PenstockCluster) -> int:
    async def work(client: Client) -> int:
        return len(await client.admin.list_partition_reassignments())

    return cluster.ask(work)


def wait_live(cluster: PenstockCluster, expected: list[int]) -> None:
    async def work(client: Client) -> list[int]:
        return sorted(broker.id for broker in (await client.admin.describe_cluster()).brokers)

    wait_for(lambda: cluster.ask(work), lambda ids: ids == expected, "fencing", cluster.logs)


def move(cluster: PenstockCluster, targets: Targets) -> None:
    """Start reassignments, and wait until they are complete."""
    assert alter(cluster, targets) == []
    wait_for(lambda: ongoing(cluster), lambda count: count == 0, "reassignments", cluster.logs)
    for (_topic, index), target in targets.items():
        partition = cluster.partition(TOPIC, index)
        assert tuple(partition.replicas) == target
        assert sorted(partition.isr) == sorted(target or ())


def throttle(cluster: PenstockCluster, rate: int) -> None:
    async def work(client: Client) -> None:
        await client.admin.alter_configs(
            ConfigResourceType.TOPIC,
            TOPIC,
            put={f"{side}.replication.throttled.replicas": "*" for side in SIDES},
        )
        for broker in range(1, NEW + 1):
            await client.admin.alter_configs(
                ConfigResourceType.BROKER,
                str(broker),
                put={f"{side}.replication.throttled.rate": str(rate) for side in SIDES},
            )

    cluster.ask(work)


def unthrottle(cluster: PenstockCluster) -> None:
    async def work(client: Client) -> None:
        for broker in range(1, NEW + 1):
            await client.admin.alter_configs(
                ConfigResourceType.BROKER,
                str(broker),
                delete=[f"{side}.replication.throttled.rate" for side in SIDES],
            )

    cluster.ask(work)


def cancel_by_kafka_python(cluster: PenstockCluster) -> None:
    """Move partition 2 from broker 2 to broker 3, list it and cancel it, with another client."""
    moving = kafka.TopicPartition(TOPIC, 2)
    admin = kafka.KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{cluster.port}")
    try:
        assert admin.alter_partition_reassignments({moving: [1, NEW, 3]}) == {moving: None}
        assert admin.list_partition_reassignments() == {
            moving: {
                "replicas": [1, NEW, 3, 2],
                "adding_replicas": [3],
                "removing_replicas": [2],
            }
        }
        assert admin.alter_partition_reassignments({moving: None}) == {moving: None}
        assert admin.list_partition_reassignments([moving]) == {}
        [refused] = admin.alter_partition_reassignments({moving: None}).values()
        assert refused is kafka.errors.NoReassignmentInProgressError
        [refused] = admin.alter_partition_reassignments({moving: [99]}).values()
        assert refused.errno == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    finally:
        admin.close()


def test_a_broker_joins_and_leaves_under_load(tmp_path: Path) -> None:
    cluster = PenstockCluster(
        tmp_path,
        "log.segment.delete.delay.ms=100",
        "log.retention.check.interval.ms=500",
        "log.initial.task.delay.ms=100",
        brokers=NEW,
    )
    with running(cluster), NumberedLoad(cluster.bootstrap, TOPIC) as load:
        cluster.nodes("kill", str(NEW))
        wait_live(cluster, [1, 2, 3])
        load.start(3, {"min.insync.replicas": "2"})
        load.wait_acknowledged(2_000)
        before: Targets = {
            TopicPartition(TOPIC, index): tuple(cluster.partition(TOPIC, index).replicas)
            for index in range(PARTITIONS)
        }
        assert all(sorted(replicas or ()) == [1, 2, 3] for replicas in before.values())
        cluster.nodes("restart", str(NEW))
        # Each partition leaves another broker, and broker 4 leads one of them.
        after: Targets = {
            TopicPartition(TOPIC, 0): (NEW, 2, 3),
            TopicPartition(TOPIC, 1): (1, NEW, 3),
            TopicPartition(TOPIC, 2): (1, 2, NEW),
        }
        throttle(cluster, RATE)
        move(cluster, after)
        unthrottle(cluster)
        load.wait_acknowledged(2_000)
        # A move that cannot end because a broker is down is cancelled.
        cluster.nodes("kill", "3")
        wait_live(cluster, [1, 2, NEW])
        cancel_by_kafka_python(cluster)
        assert sorted(cluster.partition(TOPIC, 2).replicas) == [1, 2, NEW]
        cluster.nodes("restart", "3")
        load.wait_acknowledged(2_000)
        # The broker is emptied, and has no log of the topic left.
        move(cluster, before)
        path = cluster.directory / str(NEW)
        wait_for(
            lambda: [found.name for found in path.rglob(f"{TOPIC}-*")],
            lambda names: not names,
            f"logs of broker {NEW}",
            cluster.logs,
        )
        load.wait_acknowledged(2_000)
        sent = load.finish()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
