"""Sends record batches to the leaders of their partitions, in order.

Each partition has one request in flight, and its next batch waits for it. Partitions do not wait
for each other. The buffered bytes are bounded. With an idempotent producer the broker drops
duplicates of a retry. The first error that is not retriable, or that outlasts
delivery.timeout.ms, fails the task. Spark then runs the task again, and the records that were
already written are written again. Knows nothing of rows and columns.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.client.client import Client
from penstock.client.errors import Backoff, check, error_of
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_UUID, TopicPartition
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.spark.options import SinkOptions

# From v13 on, requests identify topics by id only (KIP-516).
_LAST_VERSION_BY_NAME = 12
_WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """Without a producer id, batches have no sequence numbers, and a retry may write them twice."""

    id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class BatchSender:
    def __init__(self, client: Client, options: SinkOptions, producer: ProducerIdAndEpoch) -> None:
        self.producer = producer
        self._client = client
        self._options = options
        self._locks: dict[TopicPartition, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffered_bytes = 0
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    @classmethod
    async def open(cls, client: Client, options: SinkOptions) -> BatchSender:
        async def init_producer_id() -> ProducerIdAndEpoch:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            response = await client.cluster.call(request, InitProducerIdResponse)
            check(response.error_code, "the broker did not assign a producer id")
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        if not options.idempotent:
            return cls(client, options, ProducerIdAndEpoch())
        return cls(client, options, await client.cluster.retry(init_producer_id))

    async def send(self, partition: TopicPartition, batch: bytes) -> None:
        """Start sending a batch. Waits while the buffer is full (buffer.memory), and raises the
        error of an earlier batch."""
        while (
            self._failure is None
            and self._buffered_bytes > 0
            and self._buffered_bytes + len(batch) > self._options.buffer_bytes
        ):
            await self._wait_for_change()
        self._check()
        self._buffered_bytes += len(batch)
        task = asyncio.create_task(self._deliver(partition, batch), name=f"produce to {partition}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def flush(self) -> None:
        """Wait until all batches are acknowledged."""
        while self._failure is None and self._tasks:
            await self._wait_for_change()
        self._check()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._failure = self._failure or task.exception()
        self._changed.set()

    async def _deliver(self, partition: TopicPartition, batch: bytes) -> None:
        """Send until acknowledged. asyncio.Lock is fair, so the batches of a partition keep their
        order."""
        world = self._client.cluster.world
        deadline = world.clock.monotonic() + self._options.delivery_timeout_s
        async with self._locks.setdefault(partition, asyncio.Lock()):
            backoff = Backoff(world.rng)
            while self._failure is None:
                try:
                    await self._produce(partition, batch)
                except KafkaError as error:
                    self._client.cluster.metadata.forget(partition.topic)
                    wait_s = backoff.next_s()
                    if not error.code.retriable or world.clock.monotonic() + wait_s > deadline:
                        raise _with_advice(error, partition, self._options) from error
                    await asyncio.sleep(wait_s)
                else:
                    self._buffered_bytes -= len(batch)
                    return

    async def _produce(self, partition: TopicPartition, batch: bytes) -> None:
        topic, info = await self._client.cluster.leader(partition)
        connection = await self._client.cluster.broker(info.leader)
        partition_data = ProduceRequest.TopicData.PartitionData(
            index=partition.partition, records=batch
        )
        topic_data = ProduceRequest.TopicData(
            name=topic.name, topic_id=topic.id, partition_data=(partition_data,)
        )
        request = ProduceRequest(
            acks=self._options.acks,
            timeout_ms=int(self._client.cluster.request_timeout_s * 1000),
            topic_data=(topic_data,),
        )
        response = await connection.call(
            request,
            ProduceResponse,
            max_version=_LAST_VERSION_BY_NAME if topic.id == NO_UUID else None,
        )
        for topic_response in response.responses:
            for result in topic_response.partition_responses:
                if result.error_code not in _WRITTEN:
                    message = result.error_message or "the broker refused the records"
                    raise error_of(result.error_code, message)


def _with_advice(error: KafkaError, partition: TopicPartition, options: SinkOptions) -> KafkaError:
    advice = ""
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        advice = (
            ": raise max.message.bytes of the topic, or lower the option kafka.batch.size "
            f"({options.batch_bytes})"
        )
    elif error.code.retriable:
        advice = (
            f": not written within {options.delivery_timeout_s:g} s (the option "
            "kafka.delivery.timeout.ms)"
        )
    return KafkaError(error.code, f"{partition}: {error.message}{advice}")
