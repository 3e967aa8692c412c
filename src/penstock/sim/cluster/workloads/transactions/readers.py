"""Readers of transactional topics: with read_committed and read_uncommitted, from leaders and from
followers, and fresh ones that read everything at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from penstock.client.client import Client
from penstock.client.consumer.completed_fetch import decode_records
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.errors import check
from penstock.client.offsets import IsolationLevel
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.sim.cluster.spec import RACKS
from penstock.sim.cluster.transaction_events import IsolatedRead, StableOffsetFetched
from penstock.sim.cluster.workloads.transactions.env import TxnEnv
from penstock.sim.cluster.workloads.workload import RETRY_S
from penstock.world.sim import Node as Machine

# Small, so that a fetch often ends in the middle of a transaction.
_MAX_BYTES = 600

MaxVisible = Callable[[TopicPartition], int]


class IsolatedReader:
    """Reads partitions from offset 0 on, until the run is over."""

    def __init__(
        self, env: TxnEnv, name: str, partitions: list[TopicPartition], *, committed: bool
    ) -> None:
        self._env = env
        self._name = name
        self._committed = committed
        self._positions = dict.fromkeys(partitions, 0)

    async def run(self, machine: Machine, max_visible: MaxVisible) -> None:
        env, now = self._env, machine.world.clock.monotonic
        isolation = (
            IsolationLevel.READ_COMMITTED if self._committed else IsolationLevel.READ_UNCOMMITTED
        )
        async with env.connected(machine) as client:
            while not env.over.is_set():
                consumer = client.consumer(
                    isolation=isolation, max_wait_s=0.1, partition_max_bytes=_MAX_BYTES
                )
                await consumer.assign(self._positions)
                try:
                    while not env.over.is_set():
                        for record in await consumer.poll():
                            partition = TopicPartition(record.topic, record.partition)
                            env.note(
                                IsolatedRead(
                                    now(),
                                    self._name,
                                    partition,
                                    record.offset,
                                    record.value or b"",
                                    self._committed,
                                    max_visible(partition),
                                )
                            )
                        self._positions = dict(consumer.positions)
                except KafkaError:
                    self._positions = dict(consumer.positions)
                    await asyncio.sleep(RETRY_S)
                finally:
                    consumer.close()


class FollowerReader:
    """Reads one partition with read_committed from a replica in its rack (KIP-392), in small
    pieces. The aborted transactions come from that replica's index."""

    def __init__(self, env: TxnEnv, partition: TopicPartition) -> None:
        self._env = env
        self._partition = partition
        self._name = f"follower reader of {partition}"
        self._rack = env.rng.choice(RACKS)
        self._replica: int | None = None
        self._position = 0

    async def run(self, machine: Machine, max_visible: MaxVisible) -> None:
        now = machine.world.clock.monotonic
        async with self._env.connected(machine) as client:
            while not self._env.over.is_set():
                try:
                    await self._fetch(now, client, max_visible)
                except KafkaError as error:
                    follower, self._replica = self._replica, None
                    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and follower is None:
                        self._position = 0
                    client.cluster.metadata.forget(self._partition.topic)
                    await asyncio.sleep(RETRY_S)

    async def _fetch(
        self, now: Callable[[], float], client: Client, max_visible: MaxVisible
    ) -> None:
        env, partition = self._env, self._partition
        topic, info = await client.cluster.leader(partition)
        broker = info.leader if self._replica is None else self._replica
        connection = await client.cluster.broker(broker)
        fetched = FetchRequest.Topic.Partition(
            partition=partition.partition,
            current_leader_epoch=info.leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=_MAX_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            isolation_level=IsolationLevel.READ_COMMITTED,
            topics=(
                FetchRequest.Topic(topic=partition.topic, topic_id=topic.id, partitions=(fetched,)),
            ),
            rack_id=self._rack,
        )
        response = await connection.call(request, FetchResponse)
        check(response.error_code, "the fetch was refused")
        if not response.responses:
            return
        data = response.responses[0].partitions[0]
        check(data.error_code, f"cannot fetch {partition}")
        if data.preferred_read_replica >= 0:
            self._replica = data.preferred_read_replica
        if broker == info.leader:
            stable = data.last_stable_offset
            env.note(
                StableOffsetFetched(now(), self._name, broker, partition, info.leader_epoch, stable)
            )
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions or ()
        ]
        records, self._position = decode_records(
            partition, cast(bytes, data.records or b""), aborted, self._position, check_crcs=True
        )
        for record in records:
            value, visible = record.value or b"", max_visible(partition)
            env.note(
                IsolatedRead(now(), self._name, partition, record.offset, value, True, visible)
            )
        if broker != info.leader:
            env.history.count("committed records read from a follower", len(records))
        if env.rng.random() < 0.02:
            # As a consumer does every metadata.max.age.ms.
            self._replica = None


async def read_all(
    client: Client, partitions: list[TopicPartition], isolation: IsolationLevel
) -> dict[TopicPartition, list[tuple[int, bytes]]]:
    """Return what a fresh consumer reads from offset 0 on."""
    records: dict[TopicPartition, list[tuple[int, bytes]]] = {name: [] for name in partitions}
    async with client.consumer(
        isolation=isolation, max_wait_s=0.1, partition_max_bytes=_MAX_BYTES
    ) as consumer:
        await consumer.assign(dict.fromkeys(partitions, BEGINNING))
        ends = await consumer.end_offsets()
        while any(consumer.positions[name] < end for name, end in ends.items()):
            for record in await consumer.poll():
                name = TopicPartition(record.topic, record.partition)
                records[name].append((record.offset, record.value or b""))
    return records
