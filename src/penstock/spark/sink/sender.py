"""Sends record batches to the leaders of their partitions, in order.

A request to a broker takes along the next batch of every partition that the broker leads, up to
max.request.size. A broker has several requests in flight, a partition one: its next batch waits for
the result. The buffered bytes are bounded. With an idempotent producer the broker drops duplicates
of a retry. The first error that is not retriable, or that outlasts delivery.timeout.ms, fails the
task. Knows nothing of rows and columns.

With a transactional id the batches are part of that id's transaction. A leader adds its partition
to the transaction (KIP-890). Below transaction.version 2 the sender adds it before its first batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any

from penstock.client.client import Client
from penstock.client.errors import Backoff, check
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.client.producer.transaction_requests import (
    CONCURRENT_TRANSACTIONS_BACKOFF_S,
    TransactionConfig,
    TransactionRequests,
    is_transaction_v2,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.produce import ProduceResponse
from penstock.spark.options import SinkOptions
from penstock.spark.sink.produce_request import (
    PendingBatch,
    RoutedBatch,
    base_offsets,
    max_version,
    produce_errors,
    produce_request,
    with_advice,
)

__all__ = ["BatchSender", "ProducerIdAndEpoch"]

# As max.in.flight.requests.per.connection of Kafka's producer.
MAX_IN_FLIGHT = 5


class BatchSender:
    """Without a producer id, batches have no sequence numbers, and a retry may write them twice.

    The caller closes it: the client stays open, and with it what is being sent.
    """

    def __init__(
        self,
        client: Client,
        options: SinkOptions,
        producer: ProducerIdAndEpoch,
        transactional_id: str | None = None,
    ) -> None:
        self.producer = producer
        # The offset of the first record of each partition's last acknowledged batch.
        self.offsets: dict[TopicPartition, int] = {}
        self._cluster = client.cluster
        self._options = options
        self._transactional_id = transactional_id
        self._now = client.cluster.world.clock.monotonic
        # The batches of each partition; the first one may be in flight.
        self._queues: dict[TopicPartition, deque[PendingBatch]] = {}
        self._backoffs: dict[TopicPartition, Backoff] = {}
        # Partitions whose next batch may be sent: first without, then by their leader.
        self._ready: dict[TopicPartition, None] = {}
        self._routed: dict[int, deque[RoutedBatch]] = {}
        self._in_flight: dict[int, int] = {}
        # Below transaction.version 2: adds partitions to the transaction, and those that it has.
        self._add_partitions = (
            None
            if transactional_id is None or is_transaction_v2(client.cluster)
            else TransactionRequests(
                client.cluster,
                TransactionConfig(
                    transactional_id,
                    timeout_ms=0,
                    two_phase_commit=False,
                    max_block_s=options.delivery_timeout_s,
                ),
            ).add_partitions
        )
        self._added: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dispatching = False
        self._buffered_bytes = 0
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    @classmethod
    async def open(cls, client: Client, options: SinkOptions) -> BatchSender:
        """Return a sender outside transactions, idempotent if the options say so."""

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
        deadline_s = self._now() + self._options.delivery_timeout_s
        queue = self._queues.setdefault(partition, deque())
        queue.append(PendingBatch(partition, batch, deadline_s))
        if len(queue) == 1:
            self._make_ready(partition)

    async def send_all(self, batches: Iterable[tuple[TopicPartition, bytes]]) -> None:
        """Start sending batches, as `send` does."""
        for partition, batch in batches:
            await self.send(partition, batch)

    async def flush(self) -> None:
        """Wait until all batches are acknowledged."""
        while self._failure is None and self._buffered_bytes:
            await self._wait_for_change()
        self._check()

    async def close(self) -> None:
        """Stop sending. Batches that are not acknowledged may be written or not."""
        self._failure = self._failure or KafkaError(
            ErrorCode.NETWORK_EXCEPTION, "the sender was closed before its batches were written"
        )
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    # From a partition's queue to a request

    def _make_ready(self, partition: TopicPartition) -> None:
        """Send the partition's next batch with the next request to its leader."""
        self._ready[partition] = None
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        if not self._dispatching and self._failure is None:
            self._dispatching = True
            self._spawn(self._dispatch(), "dispatch batches")

    async def _dispatch(self) -> None:
        """Send requests until no more may be sent. Ends then, and begins again with the next batch
        or result."""
        try:
            while self._ready and self._failure is None:
                await self._add_to_transaction()
                await self._route()
            self._send_requests()
        finally:
            self._dispatching = False

    async def _add_to_transaction(self) -> None:
        missing = sorted(set(self._ready) - self._added)
        if self._add_partitions is not None and missing:
            await self._add_partitions(self.producer, missing)
            self._added.update(missing)

    async def _route(self) -> None:
        """Find the leaders of the ready partitions."""
        ready, self._ready = self._ready, {}
        for partition in ready:
            batch = self._queues[partition][0]
            try:
                topic, info = await self._cluster.leader(partition)
            except KafkaError as error:
                self._retry_later(batch, error)
            else:
                self._routed.setdefault(info.leader, deque()).append(RoutedBatch(batch, topic))

    def _send_requests(self) -> None:
        for leader, routed in self._routed.items():
            while routed and self._in_flight.get(leader, 0) < MAX_IN_FLIGHT:
                self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
                request = self._produce(leader, self._take_request(routed))
                self._spawn(request, f"produce to broker {leader}")

    def _take_request(self, routed: deque[RoutedBatch]) -> list[RoutedBatch]:
        """Take the batches of a request: at most max.request.size bytes, or one batch."""
        taken = [routed.popleft()]
        size = len(taken[0].batch.records)
        while routed:
            size += len(routed[0].batch.records)
            if size > self._options.max_request_bytes:
                break
            taken.append(routed.popleft())
        return taken

    # Requests and their results

    async def _produce(self, leader: int, routed: list[RoutedBatch]) -> None:
        try:
            errors = await self._call(leader, routed)
        except KafkaError as error:
            errors = {entry.batch.partition: error for entry in routed}
        self._in_flight[leader] -= 1
        for entry in routed:
            refused = errors.get(entry.batch.partition)
            if refused is None:
                self._delivered(entry.batch)
            else:
                self._retry_later(entry.batch, refused)
        self._dispatch_soon()

    async def _call(
        self, leader: int, routed: list[RoutedBatch]
    ) -> dict[TopicPartition, KafkaError]:
        connection = await self._cluster.broker(leader)
        response = await connection.call(
            produce_request(
                routed,
                acks=self._options.acks,
                timeout_s=self._cluster.request_timeout_s,
                transactional_id=self._transactional_id,
            ),
            ProduceResponse,
            max_version=max_version(routed, transaction_v1=self._add_partitions is not None),
        )
        self.offsets.update(base_offsets(routed, response))
        return produce_errors(routed, response)

    def _delivered(self, batch: PendingBatch) -> None:
        queue = self._queues[batch.partition]
        queue.popleft()
        self._backoffs.pop(batch.partition, None)
        self._buffered_bytes -= len(batch.records)
        self._changed.set()
        if queue:
            self._make_ready(batch.partition)

    def _retry_later(self, batch: PendingBatch, error: KafkaError) -> None:
        """Send the batch again after a moment. Fail if that does not help, or is too late."""
        partition = batch.partition
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            wait_s = CONCURRENT_TRANSACTIONS_BACKOFF_S
        else:
            self._cluster.metadata.forget(partition.topic)
            backoff = self._backoffs.setdefault(partition, Backoff(self._cluster.world.rng))
            wait_s = backoff.next_s()
        if not error.code.retriable or self._now() + wait_s > batch.deadline_s:
            self._fail(with_advice(error, batch, self._options))
        else:
            asyncio.get_running_loop().call_later(wait_s, self._make_ready, partition)
