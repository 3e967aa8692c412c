"""Sender, which delivers a partition's batches in order, exactly once, with retries.

One task per partition sends batches with up to five requests in flight and handles responses in
the order of the requests. After a failure it sends nothing until all responses have arrived, then
sends the failed batches again before later ones. Sequence numbers let the broker discard
duplicates. If a batch with a sequence expires, later sequences would leave a gap; the partition
then continues with a new producer id, and batches that may have been written with the old one
fail, because sending them again could duplicate them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import Backoff, error_of
from penstock.client.producer.accumulator import (
    NO_PRODUCER,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
    SequenceNumbers,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.compression import Codec

PartitionResponse = ProduceResponse.Response.PartitionResponse

# Brokers keep the sequences of a producer's last five batches, so a duplicate of an older batch
# cannot be recognised.
MAX_IN_FLIGHT = 5
# Produce v13 identifies topics by id only.
_MAX_VERSION_BY_NAME = 12
# Errors after which the batch is certainly not written. NOT_LEADER_OR_FOLLOWER is not among them:
# a broker that loses leadership also returns it for batches that it wrote and could not commit.
_NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


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
    ) -> None:
        """`init_producer_id` returns the producer id, or a new one if given the current one.
        `on_done` is called for every batch that succeeded or failed."""
        self.accumulator = accumulator
        self.wake = asyncio.Event()
        self.flushing = False
        self._cluster = cluster
        self._partition = partition
        self._config = config
        self._init_producer_id = init_producer_id
        self._on_done = on_done
        self._producer: ProducerIdAndEpoch | None = None
        # The producer id that can no longer be used on this partition.
        self._stale_producer: ProducerIdAndEpoch | None = None
        self._sequences = SequenceNumbers()
        self._in_flight: deque[tuple[ProducerBatch, asyncio.Future[ProduceResponse]]] = deque()
        # Failed batches to send again once all responses have arrived.
        self._to_retry: list[ProducerBatch] = []
        self._draining = False
        self._backing_off = False
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
            producer = await self._current_producer()
            topic, info = await self._cluster.leader(self._partition)
            connection = await self._cluster.broker(info.leader)
            if self._config.idempotent:
                self._sequences.assign(batch)
            partition_data = ProduceRequest.TopicData.PartitionData(
                index=self._partition.partition,
                records=batch.encode(self._config.codec, producer),
            )
            data = ProduceRequest.TopicData(
                name=topic.name, topic_id=topic.id, partition_data=(partition_data,)
            )
            timeout_s = self._config.request_timeout_s
            request = ProduceRequest(
                acks=self._config.acks, timeout_ms=int(timeout_s * 1000), topic_data=(data,)
            )
            max_version = _MAX_VERSION_BY_NAME if topic.id == NO_UUID else None
            if self._config.acks == 0:
                connection.send_without_response(request, max_version=max_version)
                batch.succeed(-1, -1)
                self._on_done(batch)
                return
            future = connection.send(
                request, ProduceResponse, max_version=max_version, timeout_s=timeout_s
            )
        except KafkaError as error:
            self._handle_failure(batch, error, sent=False)
            return
        future.add_done_callback(lambda _future: self.wake.set())
        self._in_flight.append((batch, future))

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
                response = _only_partition(future.result())
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
            self._fail(batch, _record_errors(batch, error, response))
        else:
            self._handle_failure(batch, error, sent=True)

    def _handle_failure(self, batch: ProducerBatch, error: KafkaError, *, sent: bool) -> None:
        batch.maybe_written |= sent and error.code not in _NOT_WRITTEN and error.code.retriable
        # A batch behind a failed one is out of order; it is sent again after the failed one.
        follows = self._draining and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expired = self._now() >= batch.created + self._config.delivery_timeout_s
        if (error.code.retriable or follows) and not expired:
            self._draining = self._backing_off = True
            self._cluster.metadata.forget(self._partition.topic)
            if sent:
                self._to_retry.append(batch)
            else:
                # The batches in flight are older, and are inserted before it if they fail.
                self.accumulator.reenqueue([batch])
        else:
            self._fail(batch, error)

    def _fail(self, batch: ProducerBatch, errors: KafkaError | list[KafkaError]) -> None:
        batch.fail(errors)
        self._on_done(batch)
        if batch.encoded is not None and self._config.idempotent:
            self._draining = True
            self._stale_producer, self._producer = self._producer or self._stale_producer, None
            self._producer_known = False

    async def _resume(self) -> None:
        """Reenqueue the failed batches once all responses have arrived, and back off."""
        self.accumulator.reenqueue(self._to_retry)
        self._to_retry, self._draining = [], False
        backing_off, self._backing_off = self._backing_off, False
        if self._config.idempotent and self._producer is None:
            self.accumulator.keep_if(self._can_change_producer)
            self._sequences = SequenceNumbers()
        if backing_off:
            await asyncio.sleep(self._backoff.next_s())

    def _can_change_producer(self, batch: ProducerBatch) -> bool:
        """Fail a batch that may be written: with a new producer id, the broker would not
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


def _only_partition(response: ProduceResponse) -> PartitionResponse:
    partitions = [
        partition for topic in response.responses for partition in topic.partition_responses
    ]
    if len(partitions) != 1:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the Produce response has {len(partitions)} partitions; expected 1",
        )
    return partitions[0]


def _record_errors(
    batch: ProducerBatch, error: KafkaError, response: PartitionResponse
) -> list[KafkaError]:
    """Return one error per record: the broker names the invalid records (KIP-467), and writes
    none of the batch."""
    invalid = {
        record.batch_index: record.batch_index_error_message for record in response.record_errors
    }
    refused_with_them = KafkaError(
        error.code, "not written, because another record of the same batch was refused"
    )
    return [
        KafkaError(error.code, invalid[index] or error.message)
        if index in invalid
        else refused_with_them
        for index in range(len(batch.futures))
    ]
