"""A compacted topic: one producer writes values and tombstones under few keys.

However often the log is compacted, the last acknowledged value of every key is there, and nothing
that a tombstone deleted comes back (rules 1 and 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.producer.accumulator import RecordMetadata
from penstock.client.producer.producer import Producer
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.records.record import Record
from penstock.sim.cluster.events import KeyedRecordAcknowledged, KeyedRecordSent
from penstock.sim.cluster.history import KeyedRecord
from penstock.sim.cluster.workloads.workload import (
    RETRY_S,
    Clients,
    Workload,
    WorkloadEnv,
    create_topic,
    sleep_until,
)
from penstock.world.sim import Node as Machine

TOPIC = "compacted"
PARTITION = TopicPartition(TOPIC, 0)
_KEYS = 6
# The header of a record that has its number: tombstones have no value.
_NUMBER = "number"


def keyed_record(record: Record | ConsumerRecord) -> KeyedRecord:
    number = int(dict(record.headers)[_NUMBER] or b"")
    return KeyedRecord(record.offset, record.key or b"", number, record.value is None)


class CompactedTopic(Workload):
    def __init__(self, env: WorkloadEnv) -> None:
        super().__init__(env)
        env.history.durable_topics[TOPIC] = True
        self._number = 0

    async def prepare(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            await create_topic(
                client,
                TOPIC,
                1,
                3,
                {
                    "min.insync.replicas": "2",
                    "cleanup.policy": "compact",
                    "internal.segment.bytes": self.rng.choice(("200", "800")),
                    "min.cleanable.dirty.ratio": "0.01",
                    "delete.retention.ms": self.rng.choice(("0", "1000", "86400000")),
                },
            )

    def clients(self, first: Machine, _second: Machine) -> Clients:
        return [(first, self.produce(first))]

    async def produce(self, machine: Machine) -> None:
        now = machine.world.clock.monotonic
        async with (
            self.env.connected(machine) as client,
            client.producer(delivery_timeout_s=300.0, linger_s=0.005, batch_bytes=150) as producer,
        ):
            while not self.over.is_set():
                for _ in range(self.rng.choice((1, 3))):
                    await self._send(now, producer)
                await sleep_until(self.over, self.rng.random() * 0.2)

    async def _send(self, now: Callable[[], float], producer: Producer) -> None:
        self._number += 1
        number, key = self._number, f"k{self.rng.randrange(_KEYS)}".encode()
        value = None if self.rng.random() < 0.2 else b"value"
        headers = ((_NUMBER, str(number).encode()),)
        try:
            future = await producer.send(TOPIC, value, key=key, headers=headers, partition=0)
        except KafkaError:
            await asyncio.sleep(RETRY_S)
            return
        self.note(KeyedRecordSent(now(), PARTITION, key, number, tombstone=value is None))

        def delivered(delivery: asyncio.Future[RecordMetadata]) -> None:
            if not delivery.cancelled() and delivery.exception() is None:
                self.note(KeyedRecordAcknowledged(now(), PARTITION, key, number))

        future.add_done_callback(delivered)

    async def read_back(self, machine: Machine) -> None:
        async with (
            self.env.connected(machine) as client,
            client.consumer(max_wait_s=0.1) as consumer,
        ):
            await consumer.assign({PARTITION: BEGINNING})
            ends = await consumer.end_offsets()
            records = self.history.final_keyed["a consumer"] = []
            while consumer.positions[PARTITION] < ends[PARTITION]:
                records += [keyed_record(record) for record in await consumer.poll()]
        self.history.count("compacted records missing", ends[PARTITION] - len(records))
