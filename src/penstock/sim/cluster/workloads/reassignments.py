"""Partitions that move between brokers while clients are at work: started, replaced, cancelled and
throttled (KIP-455, KIP-73)."""

from __future__ import annotations

import asyncio
import contextlib

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.sim.cluster.events import ReassignmentEnded
from penstock.sim.cluster.spec import OFFSETS_PARTITIONS
from penstock.sim.cluster.workloads.clients import REQUEST_TIMEOUT_S
from penstock.sim.cluster.workloads.workload import (
    RETRY_S,
    Clients,
    Workload,
    WorkloadEnv,
    sleep_until,
    until_done,
)
from penstock.world.sim import Node as Machine

# Clocks may jump at the beginning, which must not move a leader. A reassignment may.
_FIRST_S = 2.0
_RATES = {
    "leader.replication.throttled.rate": (300, 3_000, 100_000),
    "follower.replication.throttled.rate": (300, 3_000, 100_000),
}
_ALL_BROKERS = ""
_READS = 15
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Reassignments(Workload):
    """During the faults, requests are made at random, and may or may not be carried out. After them
    each partition moves once more, and must end as requested."""

    is_disruptive = True

    def __init__(self, env: WorkloadEnv) -> None:
        super().__init__(env)
        self._brokers = [env.spec.configs[name].node_id for name in env.spec.brokers]
        # A topic with min.insync.replicas=1 keeps its factor: with one replica, faults may lose it.
        self._least = {topic.name: topic.min_insync for topic in env.spec.topics}
        self._factors = {topic.name: topic.factor for topic in env.spec.topics}
        self._partitions = [name for topic in env.spec.topics for name in topic.all_partitions]
        self._internal = [TopicPartition(OFFSETS_TOPIC, n) for n in range(OFFSETS_PARTITIONS)]
        # The client of `reassign` has ended, and has had a request whose outcome is unknown.
        self._reassigned = asyncio.Event()
        self._is_unknown = False
        env.history.has_reassignments = True

    def clients(self, first: Machine, _second: Machine) -> Clients:
        return [(first, self.reassign(first))]

    def _target(self, partition: TopicPartition) -> tuple[int, ...]:
        factor = self._factors.get(partition.topic, 3)
        if self._least.get(partition.topic, 2) > 1:
            factor = min(self.rng.choice((2, 3, 3, 3, 4)), len(self._brokers))
        return tuple(self.rng.sample(self._brokers, factor))

    async def reassign(self, machine: Machine) -> None:
        """Start and cancel reassignments, without waiting for their end."""
        async with self.env.connected(machine) as client:
            await sleep_until(self.over, _FIRST_S)
            while not self.over.is_set():
                await sleep_until(self.over, self.rng.choice((0.05, 0.3, 1.0)))
                if self.over.is_set():
                    break
                try:
                    await self._request(client)
                except KafkaError:
                    self._is_unknown = True
        self._reassigned.set()

    async def _request(self, client: Client) -> None:
        draw = self.rng.random()
        if draw < 0.15:
            await self._throttle(client)
        elif draw < 0.35:
            await self._alter(client, self._drawn(), None)
        else:
            partition = self._drawn()
            await self._alter(client, partition, self._target(partition))

    def _drawn(self) -> TopicPartition:
        return self.rng.choice(self._internal if self.rng.random() < 0.2 else self._partitions)

    async def _alter(
        self, client: Client, partition: TopicPartition, target: tuple[int, ...] | None
    ) -> KafkaError | None:
        [error] = (await client.admin.alter_partition_reassignments({partition: target})).values()
        if error is None:
            self.history.count(
                "reassignments cancelled" if target is None else "reassignments started"
            )
        return error

    # Throttles

    async def _throttle(self, client: Client) -> None:
        rates = {name: str(self.rng.choice(values)) for name, values in _RATES.items()}
        await client.admin.alter_configs(ConfigResourceType.BROKER, _ALL_BROKERS, put=rates)
        for topic in self.spec.topics:
            await client.admin.alter_configs(
                ConfigResourceType.TOPIC, topic.name, put=dict.fromkeys(_THROTTLED, "*")
            )
        self.history.count("throttles set")

    async def _remove_throttles(self, client: Client) -> None:
        await until_done(
            lambda: client.admin.alter_configs(
                ConfigResourceType.BROKER, _ALL_BROKERS, delete=list(_RATES)
            )
        )
        for topic in self.spec.topics:
            await self._unthrottle(client, topic.name)

    async def _unthrottle(self, client: Client, topic: str) -> None:
        await until_done(
            lambda: client.admin.alter_configs(
                ConfigResourceType.TOPIC, topic, delete=list(_THROTTLED)
            )
        )

    # After the faults

    async def settle(self, machine: Machine) -> None:
        # A request of `reassign` must not be carried out later than those that follow here. One
        # that failed may still be: a broker forwards it until it times out.
        await self._reassigned.wait()
        if self._is_unknown:
            await asyncio.sleep(REQUEST_TIMEOUT_S)
        async with self.env.connected(machine) as client:
            await self._remove_throttles(client)
            original = {partition: self._target(partition) for partition in self._partitions}
            for partition, target in original.items():
                await self._until_accepted(client, partition, target)
            await self._wait_ended(client)
            allowed = {
                partition: await self._move_once_more(client, partition, replicas)
                for partition, replicas in original.items()
            }
            await self._wait_ended(client)
            for partition, expected in allowed.items():
                replicas = await self._replicas(client, partition, expected)
                self.note(
                    ReassignmentEnded(
                        machine.world.clock.monotonic(), partition, replicas, expected
                    )
                )

    async def _move_once_more(
        self, client: Client, partition: TopicPartition, original: tuple[int, ...]
    ) -> tuple[tuple[int, ...], ...]:
        """Start a reassignment, and cancel some. Return the replicas that it may end with."""
        target = self._target(partition)
        await self._until_accepted(client, partition, target)
        if self.rng.random() < 0.5:
            return (target,)
        error = await self._until_accepted(client, partition, None)
        if error is None:
            return (original,)
        return original, target  # it was complete, or an earlier attempt cancelled it

    async def _replicas(
        self, client: Client, partition: TopicPartition, expected: tuple[tuple[int, ...], ...]
    ) -> tuple[int, ...]:
        """Return the replicas of a partition. A broker may not have learned of its last change yet,
        so they are read again for a while if they are not as expected."""
        sets = [set(allowed) for allowed in expected]
        replicas: tuple[int, ...] = ()
        for _try in range(_READS):
            with contextlib.suppress(KafkaError):
                [topic] = await client.admin.describe_topics([partition.topic])
                replicas = tuple(topic.partition(partition.partition).replicas)
                if set(replicas) in sets:
                    break
            await asyncio.sleep(RETRY_S)
        return replicas

    async def _until_accepted(
        self, client: Client, partition: TopicPartition, target: tuple[int, ...] | None
    ) -> KafkaError | None:
        while True:
            try:
                error = await self._alter(client, partition, target)
            except KafkaError:
                await asyncio.sleep(RETRY_S)
                continue
            if error is None or error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                return error
            await asyncio.sleep(RETRY_S)

    async def _wait_ended(self, client: Client) -> None:
        """Wait until no partition moves: all brokers are alive, so every reassignment ends."""
        while True:
            with contextlib.suppress(KafkaError):
                if not await client.admin.list_partition_reassignments():
                    return
            await asyncio.sleep(RETRY_S)
