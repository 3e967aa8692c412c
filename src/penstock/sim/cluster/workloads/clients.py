"""Producers of several kinds, consumers with assigned partitions, and an administrator."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from functools import partial

from penstock.client.admin.admin_client import ElectionType
from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.producer.accumulator import RecordMetadata
from penstock.client.producer.producer import Producer
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.events import (
    Event,
    OffsetOutOfRange,
    RecordAcknowledged,
    RecordConsumed,
    RecordSent,
    TopicCreated,
)
from penstock.sim.cluster.history import History, ProducerKind
from penstock.sim.cluster.spec import ClusterSpec, TopicSpec
from penstock.world.sim import Node as Machine

PRODUCERS = {
    "idempotent1": ProducerKind(idempotent=True, acks_all=True),
    "idempotent2": ProducerKind(idempotent=True, acks_all=True),
    "plain": ProducerKind(idempotent=False, acks_all=True),
    "careless": ProducerKind(idempotent=False, acks_all=False),
}
REQUEST_TIMEOUT_S = 2.0
# Long enough that no producer gives up a record that the healed cluster would accept.
DELIVERY_TIMEOUT_S = 300.0
_RETRY_S = 0.2


class ClientWorkload:
    """Clients work until `over` is set. `high_watermark` gives the highest high watermark that any
    leader of a partition has had."""

    def __init__(
        self,
        spec: ClusterSpec,
        history: History,
        rng: random.Random,
        high_watermark: Callable[[TopicPartition], int],
    ) -> None:
        self._spec = spec
        self._history = history
        self._rng = rng
        self._high_watermark = high_watermark
        self.over = asyncio.Event()
        history.producers.update(PRODUCERS)

    async def create(self, machine: Machine, topic: TopicSpec) -> None:
        """Create a topic. A creation that timed out may have happened, so retry until the topic
        exists."""
        configs = {
            "min.insync.replicas": str(topic.min_insync),
            "unclean.leader.election.enable": str(topic.unclean).lower(),
        }
        if self._rng.random() < 0.5:
            configs["segment.ms"] = "1000"
        while True:
            try:
                async with self.connected(machine) as client:
                    await client.admin.create_topic(
                        topic.name,
                        partitions=topic.partitions,
                        replication_factor=topic.factor,
                        configs=configs,
                    )
                return
            except KafkaError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
                await asyncio.sleep(_RETRY_S)

    @contextlib.asynccontextmanager
    async def connected(self, machine: Machine) -> AsyncIterator[Client]:
        """Connect a client, retrying until a broker is available."""
        while True:
            client = Client(
                machine.world, self._spec.bootstrap, request_timeout_s=REQUEST_TIMEOUT_S
            )
            try:
                await client.__aenter__()
                break
            except KafkaError:
                await asyncio.sleep(_RETRY_S)
        try:
            yield client
        finally:
            await client.__aexit__(None, None, None)

    def _note(self, event: Event) -> None:
        self._history.events.append(event)

    # Producers

    async def produce(self, machine: Machine, name: str) -> None:
        """Send numbered values to random partitions, several in flight."""
        kind = PRODUCERS[name]
        # An unclean election may lose the sequence numbers of an idempotent producer, which must
        # then fail. That is Kafka's contract and no violation, so idempotent producers avoid those
        # topics.
        topics = [topic for topic in self._spec.topics if not (kind.idempotent and topic.unclean)]
        number = 0
        async with (
            self.connected(machine) as client,
            client.producer(
                acks=-1 if kind.acks_all else 1,
                idempotent=kind.idempotent,
                delivery_timeout_s=DELIVERY_TIMEOUT_S,
                linger_s=0.005,
                batch_bytes=self._rng.choice((150, 4_000)),
            ) as producer,
        ):
            while not self.over.is_set():
                topic = self._rng.choice(topics)
                for _ in range(self._rng.choice((1, 1, 1, 4))):
                    number += 1
                    partition = TopicPartition(topic.name, self._rng.randrange(topic.partitions))
                    value = f"{name}:{number}".encode()
                    await self._send(machine, producer, name, partition, value)
                await asyncio.sleep(self._rng.random() * 0.2)

    async def _send(
        self,
        machine: Machine,
        producer: Producer,
        name: str,
        partition: TopicPartition,
        value: bytes,
    ) -> None:
        now = machine.world.clock.monotonic
        while True:
            try:
                future = await producer.send(partition.topic, value, partition=partition.partition)
                break
            except KafkaError:
                # The topic's metadata is not available. Nothing was sent.
                await asyncio.sleep(_RETRY_S)
        self._note(RecordSent(now(), name, partition, value))
        future.add_done_callback(partial(self._on_delivery, now, name, partition, value))

    def _on_delivery(
        self,
        now: Callable[[], float],
        name: str,
        partition: TopicPartition,
        value: bytes,
        delivery: asyncio.Future[RecordMetadata],
    ) -> None:
        if not delivery.cancelled() and delivery.exception() is None:
            offset = delivery.result().offset
            high_watermark = self._high_watermark(partition)
            self._note(RecordAcknowledged(now(), name, partition, value, offset, high_watermark))

    # Consumers

    async def consume(self, machine: Machine, name: str, topic: TopicSpec) -> None:
        """Consume a topic from offset 0 until the run is over. After an error, go on from the last
        position."""
        positions = dict.fromkeys(topic.all_partitions, 0)
        now = machine.world.clock.monotonic
        async with self.connected(machine) as client:
            while not self.over.is_set():
                consumer = client.consumer(max_wait_s=0.1)
                await consumer.assign(positions)
                try:
                    while not self.over.is_set():
                        for record in await consumer.poll():
                            partition = TopicPartition(record.topic, record.partition)
                            self._note(
                                RecordConsumed(
                                    now(),
                                    name,
                                    partition,
                                    record.offset,
                                    record.value or b"",
                                    self._high_watermark(partition),
                                )
                            )
                        positions = dict(consumer.positions)
                except KafkaError as error:
                    positions = dict(consumer.positions)
                    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                        lost = next(
                            partition for partition in positions if str(partition) in error.message
                        )
                        self._note(OffsetOutOfRange(now(), name, lost, positions[lost]))
                        positions[lost] = 0
                    await asyncio.sleep(_RETRY_S)
                finally:
                    consumer.close()

    async def read_everything(self, machine: Machine, topics: tuple[TopicSpec, ...]) -> None:
        """Read all topics from offset 0 with a fresh consumer, after all other clients ended."""
        async with self.connected(machine) as client, client.consumer(max_wait_s=0.1) as consumer:
            await consumer.assign(
                {partition: BEGINNING for topic in topics for partition in topic.all_partitions}
            )
            ends = await consumer.end_offsets()
            records = self._history.final_records
            records.update({partition: [] for partition in ends})
            while any(consumer.positions[partition] < end for partition, end in ends.items()):
                for record in await consumer.poll():
                    partition = TopicPartition(record.topic, record.partition)
                    records[partition].append((record.offset, record.value or b""))
            self._history.final_topics = tuple(await client.admin.list_topics())

    # Administration

    async def administer(self, machine: Machine) -> None:
        """Create topics, change topic configs and elect preferred leaders. An operation that fails
        may have happened."""
        number = 0
        async with self.connected(machine) as client:
            while not self.over.is_set():
                await asyncio.sleep(self._rng.random())
                topic = self._rng.choice(self._spec.topics)
                number += 1
                with contextlib.suppress(KafkaError):
                    match self._rng.randrange(3):
                        case 0:
                            name = f"extra{number}"
                            await client.admin.create_topic(name, partitions=1)
                            self._note(TopicCreated(machine.world.clock.monotonic(), name))
                        case 1:
                            retention = str(self._rng.randrange(10**8, 10**9))
                            await client.admin.alter_configs(
                                ConfigResourceType.TOPIC,
                                topic.name,
                                put={"retention.ms": retention},
                            )
                        case 2:
                            await client.admin.elect_leaders(
                                ElectionType.PREFERRED, topic.all_partitions
                            )
