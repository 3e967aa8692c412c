"""Clients of a simulated cluster: producers of several kinds, consumers that read along, an
administrator. They note what they saw."""

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
from penstock.sim.cluster.history import (
    Acknowledged,
    Denied,
    Event,
    History,
    ProducerKind,
    Read,
    Sent,
    TopicCreated,
)
from penstock.sim.cluster.shape import Shape, Topic
from penstock.world.sim import Node as Machine

KINDS = {
    "idempotent1": ProducerKind(idempotent=True, acks_all=True),
    "idempotent2": ProducerKind(idempotent=True, acks_all=True),
    "plain": ProducerKind(idempotent=False, acks_all=True),
    "careless": ProducerKind(idempotent=False, acks_all=False),
}
REQUEST_TIMEOUT_S = 2.0
# Long enough that nothing is given up that the cluster, once healed, would take.
DELIVERY_TIMEOUT_S = 300.0
_TRY_AGAIN_S = 0.2


class Workload:
    """`until` is when clients end what they do."""

    def __init__(
        self,
        shape: Shape,
        history: History,
        rng: random.Random,
        watermark: Callable[[TopicPartition], int],
    ) -> None:
        self._shape = shape
        self._history = history
        self._rng = rng
        self._watermark = watermark
        self.over = asyncio.Event()
        history.producers.update(KINDS)

    async def create(self, machine: Machine, topic: Topic) -> None:
        """Until it is there: a creation that timed out may have happened."""
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
                await asyncio.sleep(_TRY_AGAIN_S)

    @contextlib.asynccontextmanager
    async def connected(self, machine: Machine) -> AsyncIterator[Client]:
        """A client that waits until there is a broker."""
        while True:
            client = Client(
                machine.world, self._shape.bootstrap, request_timeout_s=REQUEST_TIMEOUT_S
            )
            try:
                await client.__aenter__()
                break
            except KafkaError:
                await asyncio.sleep(_TRY_AGAIN_S)
        try:
            yield client
        finally:
            await client.__aexit__(None, None, None)

    def _note(self, event: Event) -> None:
        self._history.events.append(event)

    # Producers

    async def produce(self, machine: Machine, name: str) -> None:
        """Numbered values, several in flight, to the partitions of a topic."""
        kind = KINDS[name]
        # After an unclean election an idempotent producer may have to give up: that is its promise,
        # and not the cluster's fault.
        topics = [topic for topic in self._shape.topics if not (kind.idempotent and topic.unclean)]
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
                    await self._send(
                        machine, producer, name, partition, f"{name}:{number}".encode()
                    )
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
                await asyncio.sleep(
                    _TRY_AGAIN_S
                )  # The topic could not be asked for: nothing was sent.
        self._note(Sent(now(), name, partition, value))
        future.add_done_callback(partial(self._acknowledged, now, name, partition, value))

    def _acknowledged(
        self,
        now: Callable[[], float],
        name: str,
        partition: TopicPartition,
        value: bytes,
        done: asyncio.Future[RecordMetadata],
    ) -> None:
        if not done.cancelled() and done.exception() is None:
            offset = done.result().offset
            self._note(
                Acknowledged(now(), name, partition, value, offset, self._watermark(partition))
            )

    # Consumers

    async def consume(self, machine: Machine, name: str, topic: Topic) -> None:
        """From offset 0 on, to the end of the run; after any trouble from where it was."""
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
                            value = record.value or b""
                            self._note(
                                Read(
                                    now(),
                                    name,
                                    partition,
                                    record.offset,
                                    value,
                                    self._watermark(partition),
                                )
                            )
                        positions = dict(consumer.positions)
                except KafkaError as error:
                    positions = dict(consumer.positions)
                    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                        lost = next(
                            partition for partition in positions if str(partition) in error.message
                        )
                        self._note(Denied(now(), name, lost, positions[lost]))
                        positions[lost] = 0
                    await asyncio.sleep(_TRY_AGAIN_S)
                finally:
                    consumer.close()

    async def read_everything(self, machine: Machine, topics: tuple[Topic, ...]) -> None:
        """As a fresh consumer, when all is over."""
        async with self.connected(machine) as client, client.consumer(max_wait_s=0.1) as consumer:
            await consumer.assign(
                {partition: BEGINNING for topic in topics for partition in topic.all_partitions}
            )
            ends = await consumer.end_offsets()
            self._history.final = {partition: [] for partition in ends}
            while any(consumer.positions[partition] < end for partition, end in ends.items()):
                for record in await consumer.poll():
                    partition = TopicPartition(record.topic, record.partition)
                    self._history.final[partition].append((record.offset, record.value or b""))
            self._history.topics = tuple(await client.admin.list_topics())

    # Administration

    async def administer(self, machine: Machine) -> None:
        """Topics come, settings change, leaders are sent home. What fails may have happened."""
        number = 0
        async with self.connected(machine) as client:
            while not self.over.is_set():
                await asyncio.sleep(self._rng.random())
                topic = self._rng.choice(self._shape.topics)
                number += 1
                with contextlib.suppress(KafkaError):
                    match self._rng.randrange(3):
                        case 0:
                            await client.admin.create_topic(f"extra{number}", partitions=1)
                            self._note(
                                TopicCreated(machine.world.clock.monotonic(), f"extra{number}")
                            )
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
