"""Reads the cluster that a rebalance plans for: brokers, racks, cordons, replicas and sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from penstock.client.admin.log_dirs import LogDirInfo, describe_log_dirs
from penstock.client.admin.reassignments import PartitionReassignment
from penstock.client.client import Client
from penstock.client.rebalance.model import BrokerView, ClusterView, PartitionView
from penstock.errors import KafkaError
from penstock.ids import TopicPartition

LIVE, FENCED, CORDONED = "live", "fenced", "cordoned"

# The size of a partition by the broker that has the replica.
Sizes = dict[TopicPartition, dict[int, int]]


async def observe(
    client: Client, ongoing: Mapping[TopicPartition, PartitionReassignment]
) -> ClusterView:
    """Return the cluster as it will be when the ongoing reassignments are complete."""
    brokers = (await client.admin.describe_cluster(with_fenced=True)).brokers
    live = sorted(broker.id for broker in brokers if not broker.fenced)
    directories = await read_log_dirs(client, live)
    topics = await client.admin.describe_topics()
    sizes = _sizes(directories)
    views = []
    for broker in sorted(brokers, key=lambda broker: broker.id):
        state = FENCED if broker.fenced else LIVE
        if broker.id in directories and is_cordoned(directories[broker.id]):
            state = CORDONED
        views.append(BrokerView(broker.id, broker.rack, state == LIVE, state))
    partitions = []
    for topic in topics:
        for info in topic.partitions:
            partition = TopicPartition(topic.name, info.index)
            reassignment = ongoing.get(partition)
            replicas = info.replicas if reassignment is None else target_of(reassignment)
            if replicas:
                size = _size(sizes.get(partition, {}), info.leader)
                partitions.append(
                    PartitionView(topic.name, info.index, replicas, info.leader, size)
                )
    return ClusterView(tuple(views), partitions)


def target_of(reassignment: PartitionReassignment) -> tuple[int, ...]:
    """Return the replicas that a reassignment ends with."""
    removing = reassignment.removing
    return tuple(replica for replica in reassignment.replicas if replica not in removing)


async def read_log_dirs(
    client: Client,
    brokers: Collection[int],
    partitions: Collection[TopicPartition] | None = None,
    timeout_s: float = 10.0,
) -> dict[int, list[LogDirInfo]]:
    """Return the log directories of the brokers that answer in time. One may have just stopped, and
    is not fenced yet; the sizes of its partitions are those of their other replicas."""
    # The metadata names the brokers to connect to.
    await client.cluster.retry(lambda: client.cluster.topics([]))

    async def of_broker(broker_id: int) -> list[LogDirInfo] | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await describe_log_dirs(client.cluster, broker_id, partitions)
        except (KafkaError, TimeoutError):
            return None

    found = await asyncio.gather(*map(of_broker, brokers))
    return {
        broker_id: directories
        for broker_id, directories in zip(brokers, found, strict=True)
        if directories is not None
    }


def is_cordoned(directories: list[LogDirInfo]) -> bool:
    """Return True if a broker gets no new replicas: all its online directories are cordoned."""
    online = [directory for directory in directories if directory.error_code == 0]
    return bool(online) and all(directory.is_cordoned for directory in online)


def _sizes(directories: Mapping[int, list[LogDirInfo]]) -> Sizes:
    sizes: Sizes = {}
    for broker_id, of_broker in directories.items():
        for directory in of_broker:
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes.setdefault(partition, {})[broker_id] = replica.size
    return sizes


def _size(of_replicas: dict[int, int], leader: int) -> int:
    """Return the size of the leader's replica; without it, that of the largest."""
    if leader in of_replicas:
        return of_replicas[leader]
    return max(of_replicas.values(), default=0)
