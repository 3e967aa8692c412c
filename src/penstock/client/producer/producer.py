"""The producer, which chooses partitions, bounds memory and runs the senders."""

from __future__ import annotations

import asyncio
from types import TracebackType

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.client.producer.accumulator import (
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
    RecordMetadata,
    size_of,
)
from penstock.client.producer.partitioner import StickyPartitioner, partition_of_key
from penstock.client.producer.sender import Sender, SenderConfig
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
ACKS_ALL = -1


class Producer:
    """Use as `async with client.producer() as producer`; leaving the block flushes."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        idempotent: bool | None = None,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        linger_s: float = 0.005,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks must be -1 (all), 0 or 1, not {acks}")
        if idempotent and acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=-1 (all), not {acks}")
        self._cluster = cluster
        if idempotent is None:
            idempotent = acks == ACKS_ALL
        self._config = SenderConfig(
            acks, codec, idempotent, delivery_timeout_s, cluster.request_timeout_s
        )
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._linger_s = linger_s
        self._sticky = StickyPartitioner(cluster.world.rng, batch_bytes)
        self._senders: dict[TopicPartition, Sender] = {}
        self._producer: ProducerIdAndEpoch | None = None
        self._producer_lock = asyncio.Lock()
        self._buffered = 0
        self._buffer_freed = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._sender_tasks: list[asyncio.Task[None]] = []
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
            for task in self._sender_tasks:
                task.cancel()
            for sender in self._senders.values():
                sender.close()
            # The task group would wrap the body's exception in an ExceptionGroup. It must see a
            # CancelledError, which it may have caused itself.
            raised = (
                (kind, error, trace)
                if isinstance(error, asyncio.CancelledError)
                else (None, None, None)
            )
            await self._tasks.__aexit__(*raised)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffer a record and return a future of its position.

        Waits only for metadata of an unknown topic, or for buffer memory. The future raises
        KafkaError if the record cannot be delivered.
        """
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
            self._buffer_freed.clear()
            await self._buffer_freed.wait()
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
        """Wait until every buffered record is delivered or failed."""
        while self._buffered:
            for sender in self._senders.values():
                sender.flushing = True
                sender.wake.set()
            self._buffer_freed.clear()
            await self._buffer_freed.wait()
        for sender in self._senders.values():
            sender.flushing = False

    def _add(
        self, partition: TopicPartition, record: NewRecord, size: int
    ) -> asyncio.Future[RecordMetadata]:
        sender = self._senders.get(partition) or self._start_sender(partition)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        sender.accumulator.add(record, size, future, self._cluster.world.clock.monotonic())
        sender.wake.set()
        self._buffered += size
        return future

    def _start_sender(self, partition: TopicPartition) -> Sender:
        accumulator = RecordAccumulator(partition, self._batch_bytes, self._linger_s)
        sender = Sender(
            self._cluster,
            partition,
            accumulator,
            self._config,
            self._init_producer_id,
            self._release_memory,
        )
        self._senders[partition] = sender
        self._sender_tasks.append(
            self._tasks.create_task(sender.run(), name=f"sender of {partition}")
        )
        return sender

    def _release_memory(self, batch: ProducerBatch) -> None:
        self._buffered -= batch.size - BATCH_HEADER_BYTES
        self._buffer_freed.set()

    async def _init_producer_id(self, stale: ProducerIdAndEpoch | None) -> ProducerIdAndEpoch:
        """Return the producer id that the partitions share, or a new one if it is the stale
        one."""
        async with self._producer_lock:
            if self._producer is None or self._producer == stale:
                self._producer = await self._cluster.retry(self._request_producer_id)
            return self._producer

    async def _request_producer_id(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await self._cluster.call(request, InitProducerIdResponse)
        check(response.error_code, "InitProducerId failed")
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
