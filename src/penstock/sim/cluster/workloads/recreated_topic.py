"""A topic that is deleted and created again under the same name, and gets more partitions.

Every incarnation has its own topic id, and the history treats it as a topic of its own. No record
of one incarnation may appear in another, and an acknowledged record is in its incarnation as long
as that exists (rules 1, 3, 12).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from uuid import UUID

from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.producer.accumulator import RecordMetadata
from penstock.client.producer.producer import Producer
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.build import NewRecord, build_batch
from penstock.sim.cluster.events import RecordAcknowledged, RecordSent, TopicDeleted, incarnation
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

TOPIC = "phoenix"
_FACTOR, _MIN_INSYNC = 3, 2
_MAX_PARTITIONS = 4
_READ_WITHIN_S = 2.0


class RecreatedTopic(Workload):
    is_disruptive = True

    def __init__(self, env: WorkloadEnv) -> None:
        super().__init__(env)
        env.history.recreated_topics.add(TOPIC)
        self._number = 0
        self._partitions = 0
        self._ids: list[UUID] = []

    def clients(self, first: Machine, _second: Machine) -> Clients:
        return [(first, self.run(first))]

    async def run(self, machine: Machine) -> None:
        """Create, write, delete, and again. The last incarnation is not deleted."""
        now = machine.world.clock.monotonic
        async with self.env.connected(machine) as client:
            while True:
                await self._create(client)
                await self._use(now, client)
                if self.over.is_set():
                    return
                await self._read(client)
                await until_done(lambda: self._delete(client))
                self.note(TopicDeleted(now(), self._name(0).topic))
                self.history.count("topics deleted")
                await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.5)))

    def _name(self, index: int) -> TopicPartition:
        return incarnation(TopicPartition(TOPIC, index), self._ids[-1])

    async def _create(self, client: Client) -> None:
        """Create the topic, then wait until a broker knows its new id: a broker may still know the
        id of the deleted topic."""
        self._number += 1
        self._partitions = self.rng.choice((1, 2))
        await create_topic(
            client,
            TOPIC,
            self._partitions,
            _FACTOR,
            {"min.insync.replicas": str(_MIN_INSYNC), "internal.segment.bytes": "400"},
        )
        while True:
            with contextlib.suppress(KafkaError):
                (topic,) = await client.cluster.topics([TOPIC])
                if topic.id not in self._ids:
                    break
            await asyncio.sleep(RETRY_S)
        self._ids.append(topic.id)
        self.history.durable_topics[self._name(0).topic] = True
        self.history.producers[f"{TOPIC}{self._number}"] = ProducerKind(
            idempotent=True, acks_all=True
        )

    async def _delete(self, client: Client) -> None:
        """Delete the current incarnation by its id: a request that times out may be carried out
        late, when the topic has been created again."""
        topic = DeleteTopicsRequest.Topic(name=None, topic_id=self._ids[-1])
        request = DeleteTopicsRequest(topics=(topic,), timeout_ms=2_000)
        response = await client.cluster.call(request, DeleteTopicsResponse)
        (result,) = response.responses
        if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            raise KafkaError(ErrorCode(result.error_code), f"{TOPIC} was not deleted")
        client.cluster.metadata.forget(TOPIC)

    async def _use(self, now: Callable[[], float], client: Client) -> None:
        """Write to the current incarnation, and once to the previous one."""
        ends_at = now() + 0.5 + 2 * self.rng.random()
        number = 0
        producer = client.producer(
            delivery_timeout_s=self.rng.choice((2.0, 60.0)), linger_s=0.005, batch_bytes=150
        )
        async with producer:
            while now() < ends_at and not self.over.is_set():
                number += 1
                index = self.rng.randrange(self._partitions)
                await self._send(now, producer, index, f"{TOPIC}{self._number}:{number}".encode())
                if self.rng.random() < 0.05:
                    await self._add_partition(client)
                if number == 5 and len(self._ids) > 1:
                    await self._write_to_previous(now, client)
                await sleep_until(self.over, self.rng.random() * 0.2)

    async def _send(
        self, now: Callable[[], float], producer: Producer, index: int, value: bytes
    ) -> None:
        name, sender = self._name(index), f"{TOPIC}{self._number}"
        try:
            future = await producer.send(TOPIC, value, partition=index)
        except KafkaError:
            return  # Nothing was sent.
        self.note(RecordSent(now(), sender, name, value))

        def delivered(delivery: asyncio.Future[RecordMetadata]) -> None:
            if not delivery.cancelled() and delivery.exception() is None:
                offset, mark = delivery.result().offset, self.env.max_high_watermark(name)
                self.note(RecordAcknowledged(now(), sender, name, value, offset, mark))

        future.add_done_callback(delivered)

    async def _add_partition(self, client: Client) -> None:
        if self._partitions == _MAX_PARTITIONS:
            return
        count = self._partitions + 1
        added = await until_done(
            lambda: client.admin.create_partitions(TOPIC, count),
            ErrorCode.INVALID_PARTITIONS,
            tries=3,
        )
        if added:
            self._partitions = count
            self.history.count("partitions added")

    async def _write_to_previous(self, now: Callable[[], float], client: Client) -> None:
        """Write with the topic id of the previous incarnation, as a producer does that has not
        noticed the deletion."""
        stale, value = self._ids[-2], f"{TOPIC}{self._number - 1}:stale".encode()
        batch = bytes(build_batch([NewRecord(None, value, (), 0)]))
        data = ProduceRequest.TopicData(
            name=TOPIC,
            topic_id=stale,
            partition_data=(ProduceRequest.TopicData.PartitionData(index=0, records=batch),),
        )
        name = incarnation(TopicPartition(TOPIC, 0), stale)
        self.note(RecordSent(now(), f"{TOPIC}{self._number - 1}", name, value))
        with contextlib.suppress(KafkaError):
            _topic, info = await client.cluster.leader(TopicPartition(TOPIC, 0))
            connection = await client.cluster.broker(info.leader)
            await connection.call(
                ProduceRequest(acks=-1, timeout_ms=500, topic_data=(data,)), ProduceResponse
            )
            self.history.count("writes with a stale topic id")

    async def _read(self, client: Client) -> None:
        """Read the incarnation before it is deleted, unless that takes too long."""
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(_READ_WITHIN_S):
                await self._read_all(client)

    async def _read_all(self, client: Client) -> None:
        """Read all partitions. A former leader that is isolated returns an end offset of the past:
        then nothing is recorded."""
        async with client.consumer(max_wait_s=0.1) as consumer:
            indexes = range(self._partitions)
            await consumer.assign({TopicPartition(TOPIC, index): BEGINNING for index in indexes})
            ends = await consumer.end_offsets()
            if any(
                end < self.env.max_high_watermark(self._name(name.partition))
                for name, end in ends.items()
            ):
                return
            records: dict[TopicPartition, list[tuple[int, bytes]]] = {
                self._name(index): [] for index in indexes
            }
            while any(consumer.positions[partition] < end for partition, end in ends.items()):
                for record in await consumer.poll():
                    records[self._name(record.partition)].append(
                        (record.offset, record.value or b"")
                    )
            self.history.final_records.update(records)
            self.history.count("incarnations of a topic read")

    async def read_back(self, machine: Machine) -> None:
        """Read the last incarnation. A broker that is behind does not know it yet."""
        async with self.env.connected(machine) as client:
            await until_done(lambda: self._read_all(client))
