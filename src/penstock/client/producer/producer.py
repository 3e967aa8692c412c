"""A producer: records to partitions, in batches. Owns the choice of partition, the memory that
waits, and one delivery per partition."""

from __future__ import annotations

import asyncio
from types import TracebackType

from penstock.client.cluster import Cluster
from penstock.client.faults import check
from penstock.client.producer.delivery import DeliverySettings, PartitionDelivery
from penstock.client.producer.partitioner import StickyPartitioner, partition_of_key
from penstock.client.producer.pending import (
    BatchQueue,
    Delivered,
    PendingBatch,
    ProducerIdentity,
    size_of,
)
from penstock.ids import TopicPartition
from penstock.limits import BATCH_HEADER_BYTES
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.records.build import NewRecord
from penstock.records.compression import Codec
from penstock.records.record import Headers

BATCH_BYTES = 128 * 1024
BUFFER_BYTES = 32 * 1024 * 1024
ALL = -1


class Producer:
    """`async with client.producer() as producer`: leaving it flushes. Each partition has its own
    requests; they share the connections."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ALL,
        idempotent: bool | None = None,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        linger_s: float = 0.005,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks must be -1 (all), 0 or 1, not {acks}")
        if idempotent and acks != ALL:
            raise ValueError(f"an idempotent producer needs acks=-1 (all), not {acks}")
        self._cluster = cluster
        exactly_once = acks == ALL if idempotent is None else idempotent
        self._settings = DeliverySettings(
            acks, codec, exactly_once, delivery_timeout_s, cluster.request_timeout_s
        )
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._linger_s = linger_s
        self._sticky = StickyPartitioner(cluster.world.rng, batch_bytes)
        self._deliveries: dict[TopicPartition, PartitionDelivery] = {}
        self._identity: ProducerIdentity | None = None
        self._identifying = asyncio.Lock()
        self._buffered = 0
        self._less_buffered = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []
        self._closed = False

    async def __aenter__(self) -> Producer:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            self._closed = True
            for task in self._running:
                task.cancel()
            for delivery in self._deliveries.values():
                delivery.abandon()
            # A task group would wrap what the body raised into a group; a cancellation it must see,
            # for it may be its own.
            seen = (
                (kind, error, trace)
                if isinstance(error, asyncio.CancelledError)
                else (None, None, None)
            )
            await self._tasks.__aexit__(*seen)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[Delivered]:
        """Takes the record, and waits only where the topic is not known yet or too much is on its
        way. The future says where it went, or raises KafkaError."""
        if self._closed:
            raise RuntimeError("this producer is closed")
        record = NewRecord(
            key,
            value,
            headers,
            self._cluster.world.clock.now_ms() if timestamp is None else timestamp,
        )
        size = size_of(record)
        info = self._cluster.metadata.topics.get(topic) or await self._cluster.topic(
            topic, create=True
        )
        while self._buffered > 0 and self._buffered + size > self._buffer_bytes:
            self._less_buffered.clear()
            await self._less_buffered.wait()
        if partition is None:
            count = len(info.partitions)
            partition = (
                partition_of_key(key, count)
                if key is not None
                else self._sticky.partition_of(topic, count, size)
            )
        else:
            info.partition(partition)
        return self._add(TopicPartition(topic, partition), record, size)

    async def flush(self) -> None:
        """Until everything that was taken is delivered or given up."""
        while self._buffered:
            for delivery in self._deliveries.values():
                delivery.flushing = True
                delivery.wake.set()
            self._less_buffered.clear()
            await self._less_buffered.wait()
        for delivery in self._deliveries.values():
            delivery.flushing = False

    def _add(
        self, partition: TopicPartition, record: NewRecord, size: int
    ) -> asyncio.Future[Delivered]:
        delivery = self._deliveries.get(partition) or self._begin(partition)
        future: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        delivery.queue.add(record, size, future, self._cluster.world.clock.monotonic())
        delivery.wake.set()
        self._buffered += size
        return future

    def _begin(self, partition: TopicPartition) -> PartitionDelivery:
        queue = BatchQueue(partition, self._batch_bytes, self._linger_s)
        delivery = PartitionDelivery(
            self._cluster, partition, queue, self._settings, self._identify, self._gone
        )
        self._deliveries[partition] = delivery
        self._running.append(
            self._tasks.create_task(delivery.run(), name=f"delivery to {partition}")
        )
        return delivery

    def _gone(self, batch: PendingBatch) -> None:
        self._buffered -= batch.size - BATCH_HEADER_BYTES
        self._less_buffered.set()

    async def _identify(self, stale: ProducerIdentity | None) -> ProducerIdentity:
        """The producer id that all partitions share, or a new one for the partition that can no
        longer use it."""
        async with self._identifying:
            if self._identity is None or self._identity == stale:
                self._identity = await self._cluster.retry(self._ask_identity)
            return self._identity

    async def _ask_identity(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = await self._cluster.call(request, InitProducerIdResponse)
        check(answer.error_code, "the broker gave no producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)
