"""A consumer that names its rack, and reads from the follower there (KIP-392).

After a leader change it checks whether its records were truncated (KIP-320).

It must see the same records as a consumer that reads from leaders, and nothing above the high
watermark (rules 3, 6, 8), and no leader may report its records as truncated (rule 1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from penstock.client.client import Client
from penstock.client.consumer.completed_fetch import decode_records
from penstock.client.errors import check
from penstock.client.metadata import PartitionInfo
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from penstock.records.batch import batches
from penstock.sim.cluster.events import EpochEndFetched, OffsetOutOfRange, RecordConsumed
from penstock.sim.cluster.spec import RACKS
from penstock.sim.cluster.workloads.workload import Clients, Workload, WorkloadEnv
from penstock.world.sim import Node as Machine

_MAX_BYTES = 1_000_000
# Short, to reach a new leader before its high watermark has advanced.
_RETRY_S = 0.03
NAME = "rack reader"


class RackReader(Workload):
    def __init__(self, env: WorkloadEnv) -> None:
        super().__init__(env)
        self._rack = env.rng.choice(RACKS)
        # Partitions that a leader redirected to a follower.
        self._preferred: dict[TopicPartition, int] = {}
        # The leader epoch of the last record, and the last one whose leader was asked for its end.
        self._last_epochs: dict[TopicPartition, int] = {}
        self._checked_epochs: dict[TopicPartition, int] = {}

    def clients(self, _first: Machine, second: Machine) -> Clients:
        partitions = self.spec.topics[0].all_partitions
        return [(second, self.read(second, partition)) for partition in partitions[:2]]

    async def read(self, machine: Machine, partition: TopicPartition) -> None:
        now = machine.world.clock.monotonic
        position = 0
        async with self.env.connected(machine) as client:
            while not self.over.is_set():
                try:
                    position = await self._fetch(now, client, partition, position)
                except KafkaError as error:
                    follower = self._preferred.pop(partition, None)
                    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and follower is None:
                        self.note(OffsetOutOfRange(now(), NAME, partition, position))
                        position = 0
                    client.cluster.metadata.forget(partition.topic)
                    await asyncio.sleep(_RETRY_S)

    async def _fetch(
        self, now: Callable[[], float], client: Client, partition: TopicPartition, position: int
    ) -> int:
        """Fetch once and return the next position."""
        topic, info = await client.cluster.leader(partition)
        await self._check_epoch(now, client, partition, position, info)
        broker = self._preferred.get(partition, info.leader)
        connection = await client.cluster.broker(broker)
        fetched = FetchRequest.Topic.Partition(
            partition=partition.partition,
            current_leader_epoch=info.leader_epoch,
            fetch_offset=position,
            partition_max_bytes=_MAX_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            topics=(
                FetchRequest.Topic(topic=partition.topic, topic_id=topic.id, partitions=(fetched,)),
            ),
            rack_id=self._rack,
        )
        response = await connection.call(request, FetchResponse)
        check(response.error_code, "the fetch was refused")
        if not response.responses:
            return position
        data = response.responses[0].partitions[0]
        check(data.error_code, f"cannot fetch {partition}")
        if data.preferred_read_replica >= 0:
            self._preferred[partition] = data.preferred_read_replica
            self.history.count("readers redirected to a follower")
        fetched_bytes = cast(bytes, data.records or b"")
        records, position = decode_records(
            partition, fetched_bytes, None, position, check_crcs=True
        )
        for _at, header in batches(fetched_bytes):
            self._last_epochs[partition] = header.leader_epoch
        for record in records:
            mark = self.env.max_high_watermark(partition)
            value = record.value or b""
            self.note(RecordConsumed(now(), NAME, partition, record.offset, value, mark))
        if broker != info.leader:
            self.history.count("records read from a follower", len(records))
        with contextlib.suppress(KeyError):
            if self.rng.random() < 0.02:
                # As a consumer does every metadata.max.age.ms.
                del self._preferred[partition]
        return position

    async def _check_epoch(
        self,
        now: Callable[[], float],
        client: Client,
        partition: TopicPartition,
        position: int,
        leader: PartitionInfo,
    ) -> None:
        """Ask a new leader where the epoch of the last record ends."""
        last_epoch = self._last_epochs.get(partition)
        if last_epoch is None or self._checked_epochs.get(partition) == leader.leader_epoch:
            return
        kind = OffsetForLeaderEpochRequest.Topic
        requested = kind.Partition(
            partition=partition.partition,
            current_leader_epoch=leader.leader_epoch,
            leader_epoch=last_epoch,
        )
        connection = await client.cluster.broker(leader.leader)
        response = await connection.call(
            OffsetForLeaderEpochRequest(
                replica_id=-1, topics=(kind(topic=partition.topic, partitions=(requested,)),)
            ),
            OffsetForLeaderEpochResponse,
        )
        found = response.topics[0].partitions[0]
        check(found.error_code, f"cannot check the epoch of {partition}")
        self._checked_epochs[partition] = leader.leader_epoch
        if found.leader_epoch == last_epoch:
            self.note(EpochEndFetched(now(), NAME, partition, position, found.end_offset))
            self.history.count("epochs checked by a reader")
