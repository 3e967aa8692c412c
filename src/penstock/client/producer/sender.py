"""Sender, which delivers a partition's batches in order, exactly once, with retries.

One task per partition sends batches with up to five requests in flight and handles responses in
the order of the requests. After a failure it sends nothing until all responses have arrived, then
sends the failed batches again before later ones. Sequence numbers let the broker discard
duplicates. If a batch with a sequence expires, later sequences would leave a gap; the partition
then continues with the next producer epoch (KIP-360), and batches that may have been written with
the old one fail, because sending them again could duplicate them.

In a transaction, a batch that fails makes the transaction fail (`transactions`), and the batches
that are not sent fail with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import Backoff, error_of
from penstock.client.metadata import TopicInfo
from penstock.client.producer.accumulator import (
    NO_PRODUCER,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
    SequenceNumbers,
)
from penstock.client.producer.produce_request import (
    PartitionResponse,
    max_produce_version,
    only_partition,
    produce_request,
    record_errors,
)
from penstock.client.producer.transaction_requests import CONCURRENT_TRANSACTIONS_BACKOFF_S
from penstock.client.producer.transactions import Transactions
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_SEQUENCE, TopicPartition
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.compression import Codec

# Brokers keep the sequences of a producer's last five batches, so a duplicate of an older batch
# cannot be recognised.
MAX_IN_FLIGHT = 5
# Errors after which the batch is certainly not written. NOT_LEADER_OR_FOLLOWER is not among them:
# a broker that loses leadership also returns it for batches that it wrote and could not commit.
_NOT_WRITTEN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
# The leader has no state of the producer id, or its log lost acknowledged batches.
_LOST_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


@dataclass(frozen=True, slots=True)
class SenderConfig:
    acks: int
    codec: Codec
    idempotent: bool
    delivery_timeout_s: float
    request_timeout_s: float


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        accumulator: RecordAccumulator,
        config: SenderConfig,
        init_producer_id: Callable[[ProducerIdAndEpoch | None], Awaitable[ProducerIdAndEpoch]],
        on_done: Callable[[ProducerBatch], None],
        transactions: Transactions | None = None,
    ) -> None:
        """`init_producer_id` returns the producer id and epoch, or newer ones if given the current
        ones. `on_done` is called for every batch that succeeded or failed."""
        self.accumulator = accumulator
        self.wake = asyncio.Event()
        self.flushing = False
        self._cluster = cluster
        self._partition = partition
        self._config = config
        self._init_producer_id = init_producer_id
        self._on_done = on_done
        self._transactions = transactions
        self._producer: ProducerIdAndEpoch | None = None
        # The producer id that can no longer be used on this partition.
        self._stale_producer: ProducerIdAndEpoch | None = None
        self._sequences = SequenceNumbers()
        self._in_flight: deque[tuple[ProducerBatch, asyncio.Future[ProduceResponse]]] = deque()
        # Failed batches to send again once all responses have arrived.
        self._to_retry: list[ProducerBatch] = []
        self._draining = False
        self._backing_off = False
        self._concurrent_transactions = False
        # The leader has written a batch of this producer id.
        self._producer_known = False
        self._backoff = Backoff(cluster.world.rng)
        self._now = cluster.world.clock.monotonic

    async def run(self) -> None:
        while True:
            self._handle_responses()
            if self._draining and not self._in_flight:
                await self._resume()
            ready_at = self.accumulator.ready_at(flushing=self.flushing)
            blocked = self._draining or ready_at is None or self._is_full()
            if ready_at is not None and not blocked and ready_at <= self._now():
                await self._send(self.accumulator.drain())
            else:
                await self._wait(None if blocked else ready_at)

    def _is_full(self) -> bool:
        """Return True if another request in flight could break the order.

        Without sequence numbers, one request: a retry could be overtaken. With them, one request
        until the leader knows the producer id: it accepts any sequence as the first, so if the
        first batch failed, it would write the second and refuse the first for good. Later, the
        oldest batch in flight must be among the last five, whose sequences the broker keeps.
        """
        if not self._in_flight or not self._producer_known:
            return bool(self._in_flight)
        head = self.accumulator.head
        following = head.ordinal if head.ordinal >= 0 else self._sequences.batches
        return following - self._in_flight[0][0].ordinal >= MAX_IN_FLIGHT

    async def _wait(self, until: float | None) -> None:
        """Wait for a response, a new record or the deadline."""
        try:
            async with asyncio.timeout_at(until):
                await self.wake.wait()
        except TimeoutError:
            return
        self.wake.clear()

    async def _send(self, batch: ProducerBatch) -> None:
        """Send a batch; an error before it is sent is the batch's failure."""
        try:
            self._check_delivery_timeout(batch)
            transactions = self._transactions
            if transactions is not None:
                await transactions.wait_until_added(self._partition)
            producer = await self._current_producer()
            topic, info = await self._cluster.leader(self._partition)
            connection = await self._cluster.broker(info.leader)
            if transactions is not None:
                transactions.check_sending()
            if self._config.idempotent:
                self._sequences.assign(batch)
            request, max_version = self._request(batch, producer, topic)
            if self._config.acks == 0:
                connection.send_without_response(request, max_version=max_version)
                batch.succeed(-1, -1)
                self._on_done(batch)
                return
            future = connection.send(
                request,
                ProduceResponse,
                max_version=max_version,
                timeout_s=self._config.request_timeout_s,
            )
        except KafkaError as error:
            self._handle_failure(batch, error, sent=False)
            return
        future.add_done_callback(lambda _future: self.wake.set())
        self._in_flight.append((batch, future))

    def _request(
        self, batch: ProducerBatch, producer: ProducerIdAndEpoch, topic: TopicInfo
    ) -> tuple[ProduceRequest, int | None]:
        transactions = self._transactions
        records = batch.encode(self._config.codec, producer, transactional=transactions is not None)
        return produce_request(
            topic,
            self._partition.partition,
            records,
            acks=self._config.acks,
            timeout_s=self._config.request_timeout_s,
            transactional_id=None if transactions is None else transactions.transactional_id,
        ), max_produce_version(
            topic, transaction_v1=transactions is not None and not transactions.is_v2
        )

    async def _current_producer(self) -> ProducerIdAndEpoch:
        if not self._config.idempotent:
            return NO_PRODUCER
        if self._producer is None:
            self._producer = await self._init_producer_id(self._stale_producer)
        return self._producer

    def _handle_responses(self) -> None:
        """Handle the responses that have arrived, oldest request first."""
        while self._in_flight and self._in_flight[0][1].done():
            batch, future = self._in_flight.popleft()
            try:
                response = only_partition(future.result())
            except KafkaError as error:
                self._handle_failure(batch, error, sent=True)
            else:
                self._handle_response(batch, response)

    def _handle_response(self, batch: ProducerBatch, response: PartitionResponse) -> None:
        if response.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.succeed(
                response.base_offset if response.error_code == 0 else -1,
                response.log_append_time_ms,
            )
            self._on_done(batch)
            self._backoff.reset()
            self._producer_known = self._config.idempotent
            return
        error = error_of(
            response.error_code, response.error_message or f"{self._partition} refused the records"
        )
        if response.record_errors:
            self._fail(batch, record_errors(batch, error, response))
        else:
            self._handle_failure(batch, error, sent=True)

    def _handle_failure(self, batch: ProducerBatch, error: KafkaError, *, sent: bool) -> None:
        if self._transactions is not None and not self._transactions.may_retry:
            self._fail(batch, error)
            return
        batch.maybe_written |= sent and error.code not in _NOT_WRITTEN and error.code.retriable
        # A batch behind a failed one is out of order; it is sent again after the failed one.
        follows = self._draining and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expired = self._now() >= batch.created + self._config.delivery_timeout_s
        lost = (
            sent
            and not follows
            and error.code in _LOST_SEQUENCE
            and self._config.idempotent
            and self._transactions is None
        )
        if lost:
            self._change_producer()
        if (error.code.retriable or follows or lost) and not expired:
            self._draining = self._backing_off = True
            self._concurrent_transactions = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            if not self._concurrent_transactions:
                self._cluster.metadata.forget(self._partition.topic)
            if sent:
                self._to_retry.append(batch)
            else:
                # The batches in flight are older, and are inserted before it if they fail.
                self.accumulator.reenqueue([batch])
        else:
            self._fail(batch, error)

    def _fail(self, batch: ProducerBatch, errors: KafkaError | list[KafkaError]) -> None:
        if self._transactions is not None:
            self._fail_in_transaction(self._transactions, batch, errors)
            return
        batch.fail(errors)
        self._on_done(batch)
        if batch.encoded is not None and self._config.idempotent:
            self._change_producer()

    def _fail_in_transaction(
        self,
        transactions: Transactions,
        batch: ProducerBatch,
        errors: KafkaError | list[KafkaError],
    ) -> None:
        batch.fail(errors)
        batch.ignore_errors()
        self._on_done(batch)
        transactions.batch_failed(
            errors[0] if isinstance(errors, list) else errors,
            has_sequence=batch.sequence != NO_SEQUENCE,
        )

    def abort_unsent(self, error: KafkaError) -> None:
        """Fail the batches that are not in flight, because their transaction failed."""
        batches = [*self._to_retry, *self.accumulator.clear()]
        self._to_retry, self._backing_off = [], False
        for batch in batches:
            self._fail(batch, error)
        self.wake.set()

    def reset_sequences(self) -> None:
        """Begin with sequence 0, because the transaction's producer id or epoch changed."""
        self._producer, self._sequences = None, SequenceNumbers()

    def _change_producer(self) -> None:
        """Use another producer epoch once all responses have arrived."""
        self._draining = True
        self._stale_producer, self._producer = self._producer or self._stale_producer, None
        self._producer_known = False

    async def _resume(self) -> None:
        """Reenqueue the failed batches once all responses have arrived, and back off."""
        self.accumulator.reenqueue(self._to_retry)
        self._to_retry, self._draining = [], False
        backing_off, self._backing_off = self._backing_off, False
        if self._config.idempotent and self._producer is None and self._transactions is None:
            self.accumulator.keep_if(self._can_change_producer)
            self._sequences = SequenceNumbers()
        if backing_off:
            await asyncio.sleep(
                CONCURRENT_TRANSACTIONS_BACKOFF_S
                if self._concurrent_transactions
                else self._backoff.next_s()
            )

    def _can_change_producer(self, batch: ProducerBatch) -> bool:
        """Fail a batch that may be written: with another producer epoch, the broker would not
        recognise it as a duplicate."""
        if batch.maybe_written:
            batch.fail(
                KafkaError(
                    ErrorCode.NETWORK_EXCEPTION,
                    f"{self._partition}: earlier records failed; these may or may not be written",
                )
            )
            self._on_done(batch)
        batch.reset_sequence()
        return not batch.maybe_written

    def close(self) -> None:
        """Cancel the futures of all records that are not delivered."""
        for batch in [
            *(batch for batch, _future in self._in_flight),
            *self._to_retry,
            *self.accumulator.clear(),
        ]:
            batch.cancel()
        for _batch, future in self._in_flight:
            future.cancel()

    def _check_delivery_timeout(self, batch: ProducerBatch) -> None:
        if self._now() >= batch.created + self._config.delivery_timeout_s:
            reason = (
                f"{self._partition}: the records could not be delivered within "
                f"{self._config.delivery_timeout_s:g} s"
            )
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)
