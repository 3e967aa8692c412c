"""A consumer that names its rack, and reads from the follower there (KIP-392).

It must see the same records as a consumer that reads from leaders, and nothing above the high
watermark (rules 3, 6, 8).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from penstock.client.client import Client
from penstock.client.consumer.completed_fetch import decode_records
from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.sim.cluster.history import OffsetOutOfRange, RecordConsumed
from penstock.sim.cluster.spec import RACKS
from penstock.sim.cluster.workloads.workload import RETRY_S, Clients, Workload, WorkloadEnv
from penstock.world.sim import Node as Machine

_MAX_BYTES = 1_000_000
NAME = "rack reader"


class RackReader(Workload):
    def __init__(self, env: WorkloadEnv) -> None:
        super().__init__(env)
        self._rack = env.rng.choice(RACKS)
        # Partitions that a leader redirected to a follower.
        self._preferred: dict[TopicPartition, int] = {}

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
                    await asyncio.sleep(RETRY_S)

    async def _fetch(
        self, now: Callable[[], float], client: Client, partition: TopicPartition, position: int
    ) -> int:
        """Fetch once and return the next position."""
        topic, info = await client.cluster.leader(partition)
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
        records, position = decode_records(
            partition, cast(bytes, data.records or b""), None, position, check_crcs=True
        )
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
