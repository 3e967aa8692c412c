"""Writes the rows of a task so that the commit of the micro-batch decides whether they become
visible.

Few rows travel in the commit message, as record batches without a producer. More rows are written
to their topics in a transaction that stays open: prepared. The task's commit message names it. The
transaction of a task that fails is aborted at once if possible, otherwise by the next lease.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from penstock.client.client import Client
from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.limits import (
    SPARK_INLINE_BYTES,
    SPARK_INLINE_TASKS,
    SPARK_LATER_INLINE_BYTES,
)
from penstock.records.batch import with_producer
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import SinkOptions
from penstock.spark.shared_client import shared_client
from penstock.spark.sink.decision import PreparedTransaction, SinkError, Verdict, verdict
from penstock.spark.sink.lease import Lease
from penstock.spark.sink.rows import EncodedRows, RowWriter, gather
from penstock.spark.sink.sender import BatchSender
from penstock.spark.sink.slots import slots_of
from penstock.spark.sink.transactions import SinkTransactions

logger = logging.getLogger(__name__)

_SEQUENCES = 2**31
# A failed task does not wait long for the abort of its transaction; the next lease aborts it too.
_ABANDON_PATIENCE_S = 5.0


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """The commit message of a task. `query_id` is None for a batch write."""

    lease: Lease
    query_id: str | None
    batch_id: int
    rows: int = 0
    drained: bool = False
    inline: tuple[EncodedRows, ...] = ()
    prepared: PreparedTransaction | None = None


def max_inline_bytes(partition_id: int) -> int:
    """Return how many bytes of rows may travel in the commit message of a task. Tasks do not know
    how many they are; a large partition id says that there are at least as many."""
    return SPARK_INLINE_BYTES if partition_id < SPARK_INLINE_TASKS else SPARK_LATER_INLINE_BYTES


class TaskWriter:
    """The output of the rows of one task, which `write` takes through its steps."""

    def __init__(
        self,
        options: SinkOptions,
        lease: Lease,
        query_id: str | None,
        batch_id: int,
        max_inline_bytes: int = SPARK_INLINE_BYTES,
    ) -> None:
        self._options = options
        self._lease = lease
        self._query_id = query_id
        self._batch_id = batch_id
        self._max_inline_bytes = max_inline_bytes
        self._rows = 0
        self._inline: list[EncodedRows] = []
        self._inline_bytes = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._prepared: PreparedTransaction | None = None
        self._sender: BatchSender | None = None
        # Set while `write` runs. A task without rows does not connect to the cluster.
        self._blocking: BlockingClient

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write or drain all rows. SinkError if the batch must not be written."""
        lease = self._lease
        if verdict(lease.sink, lease.decided, self._query_id, self._batch_id) is Verdict.DRAIN:
            return self.drain(batches)
        gathered = gather(batches)
        first = next(gathered, None)
        if first is None:
            return self._result()
        with shared_client(self._options.connection) as self._blocking:
            try:
                rows = RowWriter(self._blocking, self._options, self)
                rows.write(first)
                for batch in gathered:
                    rows.write(batch)
                return self.finish()
            except BaseException:
                self.abandon()
                raise

    def drain(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Consume the rows without writing them. Spark's state stores, through which they come,
        commit only when they are exhausted."""
        rows = sum(batch.num_rows for batch in batches)
        return TaskResult(self._lease, self._query_id, self._batch_id, rows, drained=True)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer with which rows are to be encoded: none, since it is not known yet when the
        first are."""
        return NO_PRODUCER

    def add(self, batches: Sequence[EncodedRows]) -> None:
        """Take record batches without a producer."""
        self._rows += sum(rows.records for rows in batches)
        if self._prepared is not None:
            self._send(batches)
            return
        self._inline += batches
        self._inline_bytes += sum(len(rows.batch) for rows in batches)
        if self._inline_bytes > self._max_inline_bytes:
            self.begin()

    def begin(self) -> None:
        """Begin the task's transaction, and move the rows so far to it."""
        transactional_id = slots_of(self._lease.sink).take(self._lease)
        self._prepared = self._blocking.call(
            lambda client: self._transactions(client).init_task(transactional_id)
        )
        self._sender = self._blocking.call(lambda client: self._open_sender(client))
        self._send(self._inline)
        self._inline = []
        self.check_lease()

    def check_lease(self) -> None:
        """SinkError if the micro-batch is decided without this task, which is then a speculative
        one that lost, or if a later lease was taken.

        The transaction is open before this is asked. So either the commit sees it before it
        decides, or the task sees that the driver decides: nothing stays open.
        """
        sender, lease = self._sender, self._lease
        assert sender is not None
        self._blocking.call(lambda _client: sender.flush())
        if not self._blocking.call(
            lambda client: self._transactions(client).is_current(lease.producer)
        ):
            raise SinkError(
                f"the task of batch {self._batch_id} came too late: sink {lease.sink} has decided "
                "the batch without it, or the query was started again. Nothing is to be done"
            )

    def finish(self) -> TaskResult:
        """Wait until all rows are acknowledged: the transaction is prepared."""
        if (sender := self._sender) is not None:
            self._blocking.call(lambda _client: sender.flush())
            self._blocking.call(lambda _client: sender.close())
        return self._result()

    def abandon(self) -> None:
        """Abort the transaction of the failed task. It is in no commit message."""
        sender, prepared = self._sender, self._prepared
        if sender is None or prepared is None:
            return

        async def abort(client: Client) -> None:
            await sender.close()
            transactions = SinkTransactions(client, self._lease.sink, _ABANDON_PATIENCE_S)
            await transactions.abort_all([prepared])

        try:
            self._blocking.call(abort)
        except KafkaError as error:
            logger.warning(
                "the transaction of %s is not aborted (%s): the next start of the query aborts it",
                prepared.transactional_id,
                error,
            )

    def _result(self) -> TaskResult:
        return TaskResult(
            self._lease,
            self._query_id,
            self._batch_id,
            self._rows,
            inline=tuple(self._inline),
            prepared=self._prepared,
        )

    def _send(self, batches: Sequence[EncodedRows]) -> None:
        sender = self._sender
        assert sender is not None
        stamped = [(rows.partition, self._stamp(rows, sender.producer)) for rows in batches]
        self._blocking.call(lambda _client: sender.send_all(stamped))

    def _stamp(self, rows: EncodedRows, producer: ProducerIdAndEpoch) -> bytes:
        sequence = self._sequences.get(rows.partition, 0)
        self._sequences[rows.partition] = (sequence + rows.records) % _SEQUENCES
        return with_producer(rows.batch, *producer, sequence)

    def _transactions(self, client: Client) -> SinkTransactions:
        lease, patience_s = self._lease, self._options.connection.api_timeout_s
        return SinkTransactions(client, lease.sink, patience_s, is_v2=lease.is_v2)

    async def _open_sender(self, client: Client) -> BatchSender:
        assert self._prepared is not None
        return BatchSender(
            client, self._options, self._prepared.producer, self._prepared.transactional_id
        )
