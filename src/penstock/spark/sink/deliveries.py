"""Record batches on their way to the leaders of their partitions: in order, each once while this
task lives, tried again until too old.

Each partition has one request under way, and its next batch waits for it; partitions do not wait
for each other. What waits is bounded in bytes. The first failure that does not pass ends it all:
Spark runs the task again, and what was written is written once more. Must never know rows or
columns.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.client.client import Client
from penstock.client.faults import check, error_of
from penstock.client.retry import Backoff
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_UUID, TopicPartition
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.spark.options import SinkOptions

# From v13 on, topics are named by id alone.
_LAST_BY_NAME = 12
_WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(frozen=True, slots=True)
class Identity:
    """Without one, batches have no sequence numbers, and a retry may write them twice."""

    id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class Deliveries:
    def __init__(self, client: Client, options: SinkOptions, identity: Identity) -> None:
        self.identity = identity
        self._client = client
        self._options = options
        self._turns: dict[TopicPartition, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffered = 0
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    @classmethod
    async def open(cls, client: Client, options: SinkOptions) -> Deliveries:
        async def attempt() -> Identity:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            answer = await client.cluster.call(request, InitProducerIdResponse)
            check(answer.error_code, "the broker gave no producer id")
            return Identity(answer.producer_id, answer.producer_epoch)

        return cls(
            client,
            options,
            await client.cluster.retry(attempt) if options.idempotent else Identity(),
        )

    async def put(self, partition: TopicPartition, batch: bytes) -> None:
        """Takes the batch, and waits while too much is on its way. Raises what became of an earlier
        one."""
        while (
            self._failure is None
            and self._buffered > 0
            and self._buffered + len(batch) > self._options.buffer_bytes
        ):
            await self._wait_change()
        self._check()
        self._buffered += len(batch)
        task = asyncio.create_task(self._deliver(partition, batch), name=f"delivery to {partition}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def flush(self) -> None:
        """Until everything is written."""
        while self._failure is None and self._tasks:
            await self._wait_change()
        self._check()

    async def _wait_change(self) -> None:
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
        """A lock is given in the order in which it was asked for."""
        world = self._client.cluster.world
        too_late = world.clock.monotonic() + self._options.delivery_timeout_s
        async with self._turns.setdefault(partition, asyncio.Lock()):
            backoff = Backoff(world.rng)
            while self._failure is None:
                try:
                    await self._send(partition, batch)
                except KafkaError as error:
                    self._client.cluster.metadata.forget(partition.topic)
                    wait_s = backoff.next_s()
                    if not error.code.retriable or world.clock.monotonic() + wait_s > too_late:
                        raise _explained(error, partition, self._options) from error
                    await asyncio.sleep(wait_s)
                else:
                    self._buffered -= len(batch)
                    return

    async def _send(self, partition: TopicPartition, batch: bytes) -> None:
        topic, info = await self._client.cluster.leader(partition)
        connection = await self._client.cluster.broker(info.leader)
        part = ProduceRequest.TopicData.PartitionData(index=partition.partition, records=batch)
        data = ProduceRequest.TopicData(name=topic.name, topic_id=topic.id, partition_data=(part,))
        timeout_ms = int(self._client.cluster.request_timeout_s * 1000)
        request = ProduceRequest(acks=self._options.acks, timeout_ms=timeout_ms, topic_data=(data,))
        answer = await connection.call(
            request, ProduceResponse, ceiling=_LAST_BY_NAME if topic.id == NO_UUID else None
        )
        for one in (one for each in answer.responses for one in each.partition_responses):
            if one.error_code not in _WRITTEN:
                raise error_of(
                    one.error_code, one.error_message or "the broker refused the records"
                )


def _explained(error: KafkaError, partition: TopicPartition, options: SinkOptions) -> KafkaError:
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
