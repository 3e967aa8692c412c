"""The records of one partition on their way to its leader: in order, each once, tried again until
they are too old.

One task per partition sends batches with up to five requests in flight, and hears the answers in
the order of the requests. After a failure nothing is sent until all answers are in; then what
failed goes out again before what came later. Sequence numbers make the broker drop what it has
already. Where a numbered batch is given up, later numbers would leave a gap: the partition goes on
under a new producer id, and what may have been written under the old one is given up too rather
than written twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.faults import error_of
from penstock.client.producer.pending import (
    NO_IDENTITY,
    BatchQueue,
    PendingBatch,
    ProducerIdentity,
    Sequences,
)
from penstock.client.retry import Backoff
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.compression import Codec

PartitionAnswer = ProduceResponse.Response.PartitionResponse

# Brokers remember the last five batches of a producer, so that more in flight could not be told
# from duplicates.
MAX_IN_FLIGHT = 5
# From v13 on, topics are named by id alone.
_LAST_BY_NAME = 12
# Not among them: a broker that ceases to lead answers NOT_LEADER_OR_FOLLOWER for what it has
# written and could not commit, too.
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
class DeliverySettings:
    acks: int
    codec: Codec
    idempotent: bool
    delivery_timeout_s: float
    request_timeout_s: float


class PartitionDelivery:
    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        queue: BatchQueue,
        settings: DeliverySettings,
        identify: Callable[[ProducerIdentity | None], Awaitable[ProducerIdentity]],
        gone: Callable[[PendingBatch], None],
    ) -> None:
        self.queue = queue
        self.wake = asyncio.Event()
        self.flushing = False
        self._cluster = cluster
        self._partition = partition
        self._settings = settings
        self._identify = identify
        self._gone = gone
        self._identity: ProducerIdentity | None = None
        self._stale: ProducerIdentity | None = None
        self._sequences = Sequences()
        self._in_flight: deque[tuple[PendingBatch, asyncio.Future[ProduceResponse]]] = deque()
        self._returned: list[PendingBatch] = []
        self._draining = False
        self._pausing = False
        self._known_to_leader = False
        self._backoff = Backoff(cluster.world.rng)
        self._now = cluster.world.clock.monotonic

    async def run(self) -> None:
        while True:
            self._hear()
            if self._draining and not self._in_flight:
                await self._begin_again()
            ready_at = self.queue.ready_at(flushing=self.flushing)
            blocked = self._draining or ready_at is None or self._is_full()
            if ready_at is not None and not blocked and ready_at <= self._now():
                await self._send(self.queue.take())
            else:
                await self._wait(None if blocked else ready_at)

    def _is_full(self) -> bool:
        """Without sequence numbers a retry could overtake. With them, a broker that has not seen
        this producer on the partition takes any number for its first: had the first batch failed,
        the second would be taken, and the first refused for ever. Later on the oldest batch under
        way may not be so far behind the newest that the broker would have forgotten it, if it has
        it already."""
        if not self._in_flight or not self._known_to_leader:
            return bool(self._in_flight)
        following = (
            self.queue.head.ordinal if self.queue.head.ordinal >= 0 else self._sequences.batches
        )
        return following - self._in_flight[0][0].ordinal >= MAX_IN_FLIGHT

    async def _wait(self, until: float | None) -> None:
        """For an answer, a new record or the time."""
        try:
            async with asyncio.timeout_at(until):
                await self.wake.wait()
        except TimeoutError:
            return
        self.wake.clear()

    async def _send(self, batch: PendingBatch) -> None:
        """Whatever fails on the way to the leader counts as the batch's failure."""
        try:
            self._check_age(batch)
            identity = await self._own_identity()
            topic, info = await self._cluster.leader(self._partition)
            connection = await self._cluster.broker(info.leader)
            if self._settings.idempotent:
                self._sequences.number(batch)
            part = ProduceRequest.TopicData.PartitionData(
                index=self._partition.partition,
                records=batch.encode(self._settings.codec, identity),
            )
            data = ProduceRequest.TopicData(
                name=topic.name, topic_id=topic.id, partition_data=(part,)
            )
            timeout_s = self._settings.request_timeout_s
            request = ProduceRequest(
                acks=self._settings.acks, timeout_ms=int(timeout_s * 1000), topic_data=(data,)
            )
            ceiling = _LAST_BY_NAME if topic.id == NO_UUID else None
            if self._settings.acks == 0:
                connection.post(request, ceiling=ceiling)
                batch.succeed(-1, -1)
                self._gone(batch)
                return
            future = connection.send(request, ProduceResponse, ceiling=ceiling, timeout_s=timeout_s)
        except KafkaError as error:
            self._failed(batch, error, sent=False)
            return
        future.add_done_callback(lambda _future: self.wake.set())
        self._in_flight.append((batch, future))

    async def _own_identity(self) -> ProducerIdentity:
        if not self._settings.idempotent:
            return NO_IDENTITY
        if self._identity is None:
            self._identity = await self._identify(self._stale)
        return self._identity

    def _hear(self) -> None:
        """Takes the answers that are in, oldest request first."""
        while self._in_flight and self._in_flight[0][1].done():
            batch, future = self._in_flight.popleft()
            try:
                answer = _only(future.result())
            except KafkaError as error:
                self._failed(batch, error, sent=True)
            else:
                self._answered(batch, answer)

    def _answered(self, batch: PendingBatch, answer: PartitionAnswer) -> None:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.succeed(
                answer.base_offset if answer.error_code == 0 else -1, answer.log_append_time_ms
            )
            self._gone(batch)
            self._backoff.reset()
            self._known_to_leader = self._settings.idempotent
            return
        error = error_of(
            answer.error_code, answer.error_message or f"{self._partition} refused the records"
        )
        if answer.record_errors:
            self._give_up(batch, _error_of_each(batch, error, answer))
        else:
            self._failed(batch, error, sent=True)

    def _failed(self, batch: PendingBatch, error: KafkaError, *, sent: bool) -> None:
        batch.maybe_written |= sent and error.code not in _NOT_WRITTEN and error.code.retriable
        # Out of order behind a batch that failed is what is to be expected; it goes out again
        # behind it.
        follows = self._draining and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        too_old = self._now() >= batch.created + self._settings.delivery_timeout_s
        if (error.code.retriable or follows) and not too_old:
            self._draining = self._pausing = True
            self._cluster.metadata.forget(self._partition.topic)
            if sent:
                self._returned.append(batch)
            else:
                self.queue.put_back([batch])  # Behind those in flight, which may come back too.
        else:
            self._give_up(batch, error)

    def _give_up(self, batch: PendingBatch, errors: KafkaError | list[KafkaError]) -> None:
        batch.fail(errors)
        self._gone(batch)
        if batch.encoded is not None and self._settings.idempotent:
            self._draining = True
            self._stale, self._identity = self._identity or self._stale, None
            self._known_to_leader = False

    async def _begin_again(self) -> None:
        """All answers are in: what failed goes back in front, after a pause."""
        self.queue.put_back(self._returned)
        pausing, self._pausing, self._returned, self._draining = self._pausing, False, [], False
        if self._settings.idempotent and self._identity is None:
            self.queue.keep(self._survives)
            self._sequences = Sequences()
        if pausing:
            await asyncio.sleep(self._backoff.next_s())

    def _survives(self, batch: PendingBatch) -> bool:
        """Under a new producer id the broker could not know a batch again that it may have
        written."""
        if batch.maybe_written:
            batch.fail(
                KafkaError(
                    ErrorCode.NETWORK_EXCEPTION,
                    f"{self._partition}: records before these failed, and these may be written",
                )
            )
            self._gone(batch)
        batch.forget_sequence()
        return not batch.maybe_written

    def abandon(self) -> None:
        """Nothing more is sent; who waits for a record is told by a cancellation."""
        for batch in [
            *(one for one, _future in self._in_flight),
            *self._returned,
            *self.queue.clear(),
        ]:
            batch.cancel()
        for _batch, future in self._in_flight:
            future.cancel()

    def _check_age(self, batch: PendingBatch) -> None:
        if self._now() >= batch.created + self._settings.delivery_timeout_s:
            reason = (
                f"{self._partition}: the records could not be delivered within "
                f"{self._settings.delivery_timeout_s:g} s"
            )
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)


def _only(answer: ProduceResponse) -> PartitionAnswer:
    answers = [one for topic in answer.responses for one in topic.partition_responses]
    if len(answers) != 1:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"an answer for {len(answers)} partitions, where one was asked for",
        )
    return answers[0]


def _error_of_each(
    batch: PendingBatch, error: KafkaError, answer: PartitionAnswer
) -> list[KafkaError]:
    """The records that the broker names are at fault; the others went down with them."""
    named = {one.batch_index: one.batch_index_error_message for one in answer.record_errors}
    with_it = KafkaError(
        error.code, "not written, because another record of the same batch was refused"
    )
    return [
        KafkaError(error.code, named[index] or error.message) if index in named else with_it
        for index in range(len(batch.futures))
    ]
