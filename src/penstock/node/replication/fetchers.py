"""Who this node follows: one fetcher for each broker that leads partitions of which replicas are
here."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config.node import NodeConfig
from penstock.ids import TopicPartition
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.partition import Partition
from penstock.node.replication.leader_fetcher import LeaderFetcher


class Replication:
    """The fetchers are tasks of the node's own, and end with it. `address_of` says where a broker
    is reached by others."""

    def __init__(
        self,
        env: PartitionEnv,
        config: NodeConfig,
        *,
        address_of: Callable[[int], tuple[str, int] | None],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env = env
        self._config = config
        self._address_of = address_of
        self._broker_epoch = broker_epoch
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._fetcher_of: dict[TopicPartition, LeaderFetcher] = {}

    def follow(self, partition: Partition) -> None:
        """As the partition's state says: call it whenever that changed."""
        leader = partition.leader_id
        name = partition.topic_partition
        current = self._fetcher_of.get(name)
        if leader < 0 or leader == self._env.node_id:
            self.unfollow(partition)
            return
        fetcher = self._fetchers.get(leader) or self._begin(leader)
        if current is not fetcher:
            self.unfollow(partition)
            self._fetcher_of[name] = fetcher
        fetcher.add(partition)

    def unfollow(self, partition: Partition) -> None:
        fetcher = self._fetcher_of.pop(partition.topic_partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def is_cut_off(self, leader: int) -> bool:
        """Whether this node follows the leader, and has no connection to it."""
        fetcher = self._fetchers.get(leader)
        return fetcher is not None and fetcher.is_cut_off

    def _begin(self, leader: int) -> LeaderFetcher:
        fetcher = self._fetchers[leader] = LeaderFetcher(
            self._env,
            self._config,
            leader,
            address_of=self._address_of,
            broker_epoch=self._broker_epoch,
        )
        self._env.spawn(self._run(leader, fetcher))
        return fetcher

    async def _run(self, leader: int, fetcher: LeaderFetcher) -> None:
        try:
            await fetcher.run()
        finally:
            if self._fetchers.get(leader) is fetcher:
                del self._fetchers[leader]
