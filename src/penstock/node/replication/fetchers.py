"""The replica fetchers of this broker: one for each broker that leads partitions it follows."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config.node import NodeConfig
from penstock.ids import TopicPartition
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.partition import Partition
from penstock.node.replication.replica_fetcher import ReplicaFetcher


class ReplicaFetchers:
    """Starts a fetcher when the first partition follows a leader; it ends with the last. Fetchers
    are tasks that the node owns. `address_of` returns a broker's inter-broker address."""

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
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._fetcher_of: dict[TopicPartition, ReplicaFetcher] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader, if another broker leads it; called whenever the
        partition's state changed."""
        leader = partition.leader_id
        name = partition.topic_partition
        current = self._fetcher_of.get(name)
        if leader < 0 or leader == self._env.node_id:
            self.unfollow(partition)
            return
        fetcher = self._fetchers.get(leader) or self._start(leader)
        if current is not fetcher:
            self.unfollow(partition)
            self._fetcher_of[name] = fetcher
        fetcher.add(partition)

    def unfollow(self, partition: Partition) -> None:
        fetcher = self._fetcher_of.pop(partition.topic_partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def is_cut_off(self, leader: int) -> bool:
        """Return True if this broker follows a leader and has no connection to it."""
        fetcher = self._fetchers.get(leader)
        return fetcher is not None and fetcher.is_cut_off

    def _start(self, leader: int) -> ReplicaFetcher:
        fetcher = self._fetchers[leader] = ReplicaFetcher(
            self._env,
            self._config,
            leader,
            address_of=self._address_of,
            broker_epoch=self._broker_epoch,
        )
        self._env.spawn(self._run(leader, fetcher))
        return fetcher

    async def _run(self, leader: int, fetcher: ReplicaFetcher) -> None:
        try:
            await fetcher.run()
        finally:
            if self._fetchers.get(leader) is fetcher:
                del self._fetchers[leader]
