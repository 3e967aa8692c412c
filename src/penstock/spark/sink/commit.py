"""Commit and abort of a micro-batch, after its tasks.

The decision and the inline rows are one transaction of `<sink>/driver`. Its EndTxn is the moment of
the decision: before it, nothing of the micro-batch is ever visible; after it, all of it will be. A
micro-batch whose rows are all inline is thereby atomic for readers. Then the transactions of tasks
that the decision lists are committed. If that is interrupted, the next lease repeats it.

Other transactions of the sink, such as that of a speculative task that lost, would hold readers
back until the next lease. They are aborted too, but only those that were seen before the decision:
the decision proves that no later lease had been taken, so they belong to this one or to an older
one. An aborted driver's transaction proves the same, and that nothing was decided. The commit looks
for them after the driver's transaction was begun. A task that begins later sees that it was, and
aborts its own (TaskWriter.check_lease).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.client.client import Client
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.options import SinkOptions
from penstock.spark.sink.decision import Decision, PreparedTransaction, SinkError
from penstock.spark.sink.decision_log import DecisionLog
from penstock.spark.sink.inline import transactional_batches
from penstock.spark.sink.lease import Lease
from penstock.spark.sink.open_transactions import check_open, list_open
from penstock.spark.sink.task import TaskResult
from penstock.spark.sink.transactions import (
    DRIVER_TIMEOUT_MS,
    LONG_DRIVER_TIMEOUT_MS,
    NOT_OPEN,
    SinkTransactions,
)

logger = logging.getLogger(__name__)

# A query that failed does not wait long for its abort; the next lease settles everything.
_ABORT_PATIENCE_S = 10.0
# Fewer bytes of inline rows are written well within the driver's usual timeout.
_LONG_BYTES = 32 * 1024 * 1024
# A later lease was taken, or a transaction timed out.
_TOO_LATE = (ErrorCode.INVALID_PRODUCER_EPOCH, *NOT_OPEN)


def impatient(options: SinkOptions) -> SinkOptions:
    """Return the options for an abort."""
    connection = options.connection
    patience_s = min(_ABORT_PATIENCE_S, connection.api_timeout_s)
    return replace(options, connection=replace(connection, api_timeout_s=patience_s))


class Committer:
    """Each step is a method."""

    def __init__(self, client: Client, options: SinkOptions, lease: Lease) -> None:
        patience_s = options.connection.api_timeout_s
        self._client = client
        self._producer = lease.producer
        self._options = options
        self._lease = lease
        self._transactions = SinkTransactions(client, lease.sink, patience_s, is_v2=lease.is_v2)
        self._log = DecisionLog(client, lease.sink, patience_s)
        # The driver's producer after the decision, if it is known.
        self._next: ProducerIdAndEpoch | None = None

    async def commit(self, results: Sequence[TaskResult], decision: Decision) -> None:
        """Decide the micro-batch and make its rows visible. An error says nothing about whether it
        is decided; the next lease finds out."""
        listed = decision.transactions
        if listed:
            await self.check_prepared(listed)
        await self.write_decision(results, decision)
        open_ = await list_open(self._client, self._lease.sink)
        unlisted = [found for found in open_ if found not in listed]
        await self.decide()
        await self.end_listed(listed)
        await self.abort_unlisted(unlisted)
        await self.clear_list(decision)

    async def check_prepared(self, listed: Collection[PreparedTransaction]) -> None:
        """SinkError if a transaction could not be committed after the decision."""
        await check_open(self._client, listed)

    async def write_decision(self, results: Sequence[TaskResult], decision: Decision) -> None:
        """Write the inline rows and the decision to the driver's transaction."""
        options = self._options
        inline = [rows for result in results for rows in result.inline]
        try:
            if sum(len(rows.batch) for rows in inline) > _LONG_BYTES:
                self._producer = await self._transactions.init_driver(
                    self._producer, LONG_DRIVER_TIMEOUT_MS
                )
            batches = transactional_batches(
                inline, self._producer, options.codec, options.batch_bytes
            )
            await self._log.write(options, decision, self._producer, batches)
        except KafkaError as error:
            raise self._taken_over(error) from error

    async def decide(self) -> None:
        try:
            self._next = await self._transactions.end_driver(self._producer, commit=True)
        except KafkaError as error:
            raise self._taken_over(error) from error

    def _taken_over(self, error: KafkaError) -> Exception:
        if error.code not in _TOO_LATE:
            return error
        return SinkError(
            f"a commit of sink {self._lease.sink} came too late: the query was started again "
            "elsewhere, another query uses the same sinkName, or the commit took longer than "
            f"its timeout of {DRIVER_TIMEOUT_MS // 1000} s, or {LONG_DRIVER_TIMEOUT_MS // 1000} s "
            f"with more than {_LONG_BYTES >> 20} MiB in commit messages ({error}). "
            "Make sure that the query runs once, and start it again, which finds out what is "
            "written"
        )

    async def end_listed(self, listed: Collection[PreparedTransaction]) -> None:
        try:
            await self._transactions.commit_all(listed)
        except KafkaError as error:
            raise self._taken_over(error) from error

    async def clear_list(self, decision: Decision) -> None:
        """Write the decision without its list, whose transactions are committed. Then a lease need
        not commit them again, after their ids may have expired. Below transaction.version 2 this
        needs a new epoch."""
        if not decision.transactions:
            return
        try:
            producer = self._next or await self._transactions.init_driver(self._producer)
            await self._log.write(self._options, decision.without_transactions(), producer)
            await self._transactions.end_driver(producer, commit=True)
        except KafkaError as error:
            raise self._taken_over(error) from error

    async def abort_unlisted(self, unlisted: Collection[PreparedTransaction]) -> None:
        await self._transactions.abort_all(unlisted)

    async def abort(self, prepared: Collection[PreparedTransaction]) -> None:
        """Abort what the tasks wrote, unless the micro-batch is decided or may be."""
        lease, patience_s = self._lease, impatient(self._options).connection.api_timeout_s
        self._transactions = SinkTransactions(
            self._client, lease.sink, patience_s, is_v2=lease.is_v2
        )
        self._log = DecisionLog(self._client, lease.sink, patience_s)
        open_ = await list_open(self._client, self._lease.sink)
        if await self.abort_driver():
            await self.abort_unlisted({*prepared, *open_})

    async def abort_driver(self) -> bool:
        """Abort the driver's transaction. Return True if nothing was decided, nor will be.

        The success of the abort proves it. With transaction.version 2 a transaction that was never
        begun is aborted too.
        """
        producer = self._lease.producer
        try:
            try:
                await self._transactions.end_driver(producer, commit=False)
            except KafkaError as error:
                if error.code is not ErrorCode.INVALID_TXN_STATE or self._lease.is_v2:
                    raise
                return await self.fence_itself()
        except KafkaError as error:
            logger.warning(
                "sink %s: it is not known whether the last batch is written (%s); the next start "
                "of the query finds out",
                self._lease.sink,
                error,
            )
            return False
        return True

    async def fence_itself(self) -> bool:
        """Return True if nothing was decided, below transaction.version 2 where the transaction is
        not open.

        A new epoch of the driver, which it gets only if there is no later lease, makes sure that
        this lease decides nothing any more. Then the last decision is the one that the lease found,
        unless this lease or a later one has decided.
        """
        await self._transactions.init_driver(self._lease.producer)
        decided = await self._log.read(await self._log.write_barrier(self._options))
        return decided == self._lease.decided
