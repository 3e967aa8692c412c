"""A topic whose oldest records are deleted, by DeleteRecords and by retention.bytes, which changes.

What is above the log start offset is as in any other topic, and retention deletes no more than it
may (rules 1, 3, 6). As in Kafka, log start offsets are saved periodically: deleted records may
return after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.producer.accumulator import RecordMetadata
from penstock.client.producer.producer import Producer
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.events import RecordAcknowledged, RecordSent
from penstock.sim.cluster.history import ProducerKind
from penstock.sim.cluster.workloads.workload import (
    RETRY_S,
    Clients,
    Workload,
    WorkloadEnv,
    create_topic,
    sleep_until,
    until_done,
)
from penstock.world.sim import Node as Machine

TOPIC, PRODUCER = "trimmed", "trimmer"
PARTITION = TopicPartition(TOPIC, 0)
_RETENTION_BYTES = (600, 1_500, 4_000)


class TrimmedTopic(Workload):
    def __init__(self, env: WorkloadEnv) -> None:
        super().__init__(env)
        env.history.durable_topics[TOPIC] = True
        env.history.producers[PRODUCER] = ProducerKind(idempotent=True, acks_all=True)
        env.history.retention_bytes[TOPIC] = max(_RETENTION_BYTES)
        self._number = 0

    async def prepare(self, machine: Machine) -> None:
        configs = {
            "min.insync.replicas": "2",
            "retention.bytes": str(max(_RETENTION_BYTES)),
            "internal.segment.bytes": self.rng.choice(("250", "600")),
        }
        async with self.env.connected(machine) as client:
            await create_topic(client, TOPIC, 1, 3, configs)

    def clients(self, first: Machine, second: Machine) -> Clients:
        return [(first, self.produce(first)), (second, self.trim(second))]

    async def produce(self, machine: Machine) -> None:
        now = machine.world.clock.monotonic
        async with (
            self.env.connected(machine) as client,
            client.producer(delivery_timeout_s=300.0, linger_s=0.005, batch_bytes=200) as producer,
        ):
            while not self.over.is_set():
                for _ in range(self.rng.choice((1, 4))):
                    await self._send(now, producer)
                await sleep_until(self.over, self.rng.random() * 0.2)

    async def _send(self, now: Callable[[], float], producer: Producer) -> None:
        self._number += 1
        value = f"{PRODUCER}:{self._number}".encode()
        try:
            future = await producer.send(TOPIC, value, partition=0)
        except KafkaError:
            await asyncio.sleep(RETRY_S)
            return
        self.note(RecordSent(now(), PRODUCER, PARTITION, value))

        def delivered(delivery: asyncio.Future[RecordMetadata]) -> None:
            if not delivery.cancelled() and delivery.exception() is None:
                offset, mark = delivery.result().offset, self.env.max_high_watermark(PARTITION)
                self.note(RecordAcknowledged(now(), PRODUCER, PARTITION, value, offset, mark))

        future.add_done_callback(delivered)

    async def trim(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            while not self.over.is_set():
                await sleep_until(self.over, 0.5 + self.rng.random())
                if self.rng.random() < 0.4:
                    await self._delete_records(client)
                else:
                    await self._change_retention(client)

    async def _delete_records(self, client: Client) -> None:
        """Delete some records below the high watermark. A request that failed may have had its
        effect."""
        before = self.rng.randrange(self.env.max_high_watermark(PARTITION) + 1)
        deletions = self.history.deletions
        deletions[PARTITION] = max(before, deletions.get(PARTITION, 0))
        with contextlib.suppress(KafkaError):
            await client.admin.delete_records({PARTITION: before})
            self.history.count("DeleteRecords")

    async def _change_retention(self, client: Client) -> None:
        value = self.rng.choice(_RETENTION_BYTES)
        smallest = self.history.retention_bytes
        smallest[TOPIC] = min(value, smallest[TOPIC])
        put = {"retention.bytes": str(value)}
        if await until_done(
            lambda: client.admin.alter_configs(ConfigResourceType.TOPIC, TOPIC, put=put), tries=2
        ):
            self.history.count("retention.bytes changed")

    async def read_back(self, machine: Machine) -> None:
        async with (
            self.env.connected(machine) as client,
            client.consumer(max_wait_s=0.1) as consumer,
        ):
            await consumer.assign({PARTITION: BEGINNING})
            first = consumer.positions[PARTITION]
            ends = await consumer.end_offsets()
            records: list[tuple[int, bytes]] = []
            while consumer.positions[PARTITION] < ends[PARTITION]:
                records += [
                    (record.offset, record.value or b"") for record in await consumer.poll()
                ]
        self.history.final_records[PARTITION] = records
        self.history.count("records deleted", first)
