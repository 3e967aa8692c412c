"""Settings that change while clients are at work, and replicas that move between the log
directories of their brokers."""

from __future__ import annotations

import asyncio
import contextlib

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from penstock.sim.cluster.workloads.workload import Clients, Workload, sleep_until, until_done
from penstock.world.sim import Node as Machine

# A topic of factor 3 with min.insync.replicas=2, as all durable topics of a run have. With 3 one
# lagging follower suffices to refuse writes; with 4 all writes are refused.
_NORMAL, _HIGHER = 2, (3, 3, 4)


class ChangedSettings(Workload):
    """Raises min.insync.replicas for a while, also of the offsets topic. Never lowers it below 2:
    then acknowledged records could be lost."""

    is_disruptive = True

    def clients(self, first: Machine, _second: Machine) -> Clients:
        return [(first, self.change(first))]

    async def change(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            while not self.over.is_set():
                await sleep_until(self.over, 1 + 2 * self.rng.random())
                topic = self.rng.choice((self.spec.topics[0].name, OFFSETS_TOPIC))
                if await self._set_min_insync(client, topic, self.rng.choice(_HIGHER), tries=2):
                    self.history.count("min.insync.replicas changed")
                    await sleep_until(self.over, self.rng.choice((0.5, 2.5, 4.0)))
                await self._set_min_insync(client, topic, _NORMAL, tries=None)

    async def _set_min_insync(
        self, client: Client, topic: str, value: int, tries: int | None
    ) -> bool:
        return await until_done(
            lambda: client.admin.alter_configs(
                ConfigResourceType.TOPIC, topic, put={"min.insync.replicas": str(value)}
            ),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            tries=tries,
        )


class DirectoryMoves(Workload):
    """Moves replicas between log directories (AlterReplicaLogDirs, KIP-113)."""

    is_disruptive = True

    def clients(self, _first: Machine, second: Machine) -> Clients:
        return [(second, self.move(second))]

    async def move(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            while not self.over.is_set():
                await sleep_until(self.over, 0.3 + self.rng.random())
                name = self.rng.choice([*self.spec.brokers])
                config = self.spec.configs[name]
                topic = self.rng.choice(self.spec.topics)
                with contextlib.suppress(KafkaError):
                    await self._move(
                        client,
                        config.node_id,
                        self.rng.choice(topic.all_partitions),
                        self.rng.choice(config.directories),
                    )

    async def _move(
        self, client: Client, broker: int, partition: TopicPartition, path: str
    ) -> None:
        await client.cluster.topics([])
        connection = await client.cluster.broker(broker)
        moved = AlterReplicaLogDirsRequest.Dir.Topic(
            name=partition.topic, partitions=(partition.partition,)
        )
        response = await connection.call(
            AlterReplicaLogDirsRequest(
                dirs=(AlterReplicaLogDirsRequest.Dir(path=path, topics=(moved,)),)
            ),
            AlterReplicaLogDirsResponse,
        )
        if response.results[0].partitions[0].error_code == ErrorCode.NONE:
            self.history.count("directory moves accepted")
        await asyncio.sleep(0)
