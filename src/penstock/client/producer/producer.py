"""The producer, which chooses partitions, bounds memory and runs the senders.

async with client.producer(transactional_id="copy-1") as producer:
    await producer.init_transactions()
    producer.begin_transaction()
    await producer.send("out", b"value")
    await producer.send_offsets_to_transaction(offsets, "group", consumer.group_metadata)
    await producer.commit_transaction()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import TracebackType

from penstock.client.admin.groups import NO_MEMBER, ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.client.producer.accumulator import (
    NO_PRODUCER,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
    RecordMetadata,
    size_of,
)
from penstock.client.producer.partitioner import StickyPartitioner, partition_of_key
from penstock.client.producer.sender import Sender, SenderConfig
from penstock.client.producer.transaction_requests import TransactionConfig
from penstock.client.producer.transactions import Transactions
from penstock.errors import KafkaError
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
TRANSACTION_TIMEOUT_MS = 60_000
MAX_BLOCK_S = 60.0
MAX_PRODUCER_EPOCH = 2**15 - 1
# How long a producer that is closed with an open transaction tries to abort it.
_ABORT_AT_CLOSE_S = 5.0


class Producer:
    """Use as `async with client.producer() as producer`; leaving the block flushes, and aborts an
    open transaction.

    With a transactional id, errors of the transactional methods are AbortableTransactionError
    (abort, then begin again) or FatalTransactionError (close the producer). KafkaError
    REQUEST_TIMED_OUT leaves the state as it is: repeat the call.
    """

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
        transactional_id: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        two_phase_commit: bool = False,
        max_block_s: float = MAX_BLOCK_S,
        producer: ProducerIdAndEpoch | None = None,
    ) -> None:
        """`producer` is the producer id and epoch to begin with. A transactional producer expects
        its transactional id to have them, and is fenced otherwise (KIP-360).

        `two_phase_commit` lets another system decide whether transactions are committed (KIP-939):
        they have no timeout.
        """
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks must be -1 (all), 0 or 1, not {acks}")
        if idempotent and acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=-1 (all), not {acks}")
        if transactional_id is not None and (acks != ACKS_ALL or idempotent is False):
            raise ValueError("a transactional producer needs acks=-1 (all) and idempotence")
        if transactional_id is None and two_phase_commit:
            raise ValueError("two-phase commit needs a transactional id")
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
        self._producer = producer
        self._transactions: Transactions | None = None
        if transactional_id is not None:
            transaction_config = TransactionConfig(
                transactional_id,
                transaction_timeout_ms,
                two_phase_commit,
                max_block_s,
                producer or NO_PRODUCER,
            )
            self._transactions = Transactions(cluster, transaction_config, self)
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
            if not isinstance(error, asyncio.CancelledError):
                await self._abort_open_transaction()
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

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        """The current producer id and epoch, or NO_PRODUCER before the first one is needed."""
        if self._transactions is not None:
            return self._transactions.producer
        return self._producer or NO_PRODUCER

    @property
    def transactions(self) -> Transactions:
        if self._transactions is None:
            raise RuntimeError("this producer has no transactional id")
        return self._transactions

    async def init_transactions(
        self, *, keep_prepared_transaction: bool = False
    ) -> ProducerIdAndEpoch:
        """Fence earlier producers of the transactional id and abort their open transaction.

        With `keep_prepared_transaction` (KIP-939) a prepared transaction stays open; its producer
        id and epoch are returned, or NO_PRODUCER if there is none, and `complete_transaction` must
        be called before the next transaction.
        """
        return await self.transactions.init(keep_prepared=keep_prepared_transaction)

    def begin_transaction(self) -> None:
        self.transactions.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        group_metadata: ConsumerGroupMetadata = NO_MEMBER,
    ) -> None:
        """Commit a group's offsets with the transaction. With the metadata of a member, the
        coordinator refuses offsets of a member that the group has replaced (KIP-447)."""
        await self.transactions.send_offsets(offsets, group_id, group_metadata)

    async def prepare_transaction(self) -> ProducerIdAndEpoch:
        """Deliver all records, and return the producer id and epoch by which the transaction can
        be completed (KIP-939). Only `complete_transaction`, `commit_transaction` and
        `abort_transaction` may follow."""
        return await self.transactions.prepare()

    def resume_transaction(self, prepared: ProducerIdAndEpoch) -> None:
        """Take over a transaction that another producer of this transactional id has prepared,
        instead of `init_transactions`. It can then be completed, committed or aborted."""
        self.transactions.resume(prepared)

    async def complete_transaction(self, prepared: ProducerIdAndEpoch) -> None:
        """Commit the prepared transaction if it has this producer id and epoch, else abort it."""
        await self.transactions.complete(prepared)

    async def commit_transaction(self) -> None:
        """Deliver all records and commit them. If this is cancelled or times out, repeat it."""
        await self.transactions.commit()

    async def abort_transaction(self) -> None:
        """Discard the records that are not sent, and abort the transaction."""
        await self.transactions.abort()

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
        at = TopicPartition(topic, partition)
        if self._transactions is not None:
            self._transactions.add_partition(at)
        return self._add(at, record, size)

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

    def abort_unsent(self, error: KafkaError) -> None:
        """Fail the records that are not in flight, because their transaction failed."""
        for sender in self._senders.values():
            sender.abort_unsent(error)

    def reset_sequences(self) -> None:
        """Begin with sequence 0 in every partition, because the producer id or epoch changed."""
        for sender in self._senders.values():
            sender.reset_sequences()

    async def _abort_open_transaction(self) -> None:
        """Abort an open transaction, so that consumers do not wait for its timeout. Prepared ones
        stay."""
        if self._transactions is not None and self._transactions.is_open:
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_ABORT_AT_CLOSE_S):
                    await self._transactions.abort()

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
            self._transactions,
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
        """Return the producer id and epoch that the partitions share. If they are stale, use the
        next epoch: leaders then refuse late batches of the stale one (KIP-360)."""
        if self._transactions is not None:
            return self._transactions.producer
        async with self._producer_lock:
            if self._producer is None or (
                self._producer == stale and stale.epoch == MAX_PRODUCER_EPOCH
            ):
                self._producer = await self._cluster.retry(self._request_producer_id)
            elif self._producer == stale:
                self._producer = ProducerIdAndEpoch(stale.id, stale.epoch + 1)
            return self._producer

    async def _request_producer_id(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await self._cluster.call(request, InitProducerIdResponse)
        check(response.error_code, "InitProducerId failed")
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
