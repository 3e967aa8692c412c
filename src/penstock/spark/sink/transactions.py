"""Begins and ends the transactions of a sink.

Ids are `<sink>/driver` for decisions, and `<sink>/<nonce>/<slot>` for the rows of tasks. A task's
transaction is ended by others: the commit of its batch, an abort, or the next lease.

A transaction is ended by EndTxn with the producer id and epoch that wrote it, never by
InitProducerId, which would end whatever is open. Ends may be repeated: after a crash nobody knows
which ones were executed. With EndTxn v5 (transaction.version 2, KIP-890) the end of a transaction
bumps the epoch, so a producer id and epoch identify one transaction for ever:

    epoch of the request                     answer
    the open transaction's                   it ends
    one before, ended in the same way        success: this is a repetition
    one before, ended in the other way       INVALID_TXN_STATE
    any older one                            PRODUCER_FENCED

so a late or repeated end never ends a later transaction. Below transaction.version 2 the end does
not bump the epoch. There every transaction of a sink is preceded by InitProducerId, which does, so
that the table holds with EndTxn v4 too, but for "one before" read "the same".

A listed transaction must end by a commit, so only success counts. Nothing reuses a transactional id
of a decision before a lease has committed the list and cleared it. Any other answer therefore means
that the transaction was aborted: it timed out, or an administrator ended it. An abort, in contrast,
succeeds if the transaction is no longer open, regardless of which client ended it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.cluster import Cluster
from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.transaction_requests import TransactionConfig, TransactionRequests
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.sink.decision import PreparedTransaction

T = TypeVar("T")
U = TypeVar("U")

# The driver's transaction is open while the inline rows and the decision are written. The crash of
# a driver in between stalls the other sinks of the decision's partition for this time.
DRIVER_TIMEOUT_MS = 15_000
# For inline rows that may take longer. They are written before the decision.
LONG_DRIVER_TIMEOUT_MS = 120_000
# The default of transaction.max.timeout.ms, for brokers that do not tell it.
_MAX_TIMEOUT_MS = 900_000
OPEN = "Ongoing"
_EMPTY = "Empty"
_ENDING = ("PrepareCommit", "PrepareAbort")
_ENDING_POLL_S = 0.02
_COMMITTED = ("PrepareCommit", "CompleteCommit")
_TRANSACTION_VERSION = "transaction.version"
_TRANSACTION_V2 = 2
# The broker or the transactional id does not allow two-phase commit.
_NO_TWO_PHASE_COMMIT = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
# Answers to a driver whose producer is not the current one.
FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
)
# Answers to the end of a transaction that was ended otherwise.
NOT_OPEN = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)
# Coordinators are remembered with the requests. Ids of processes that ended are dropped with all.
_MAX_REMEMBERED = 1024
_remembered: dict[tuple[Cluster, TransactionConfig], TransactionRequests] = {}


def driver_id(sink: str) -> str:
    return f"{sink}/driver"


class SinkTransactions:
    """Requests are retried within `patience_s`; then they raise KafkaError."""

    def __init__(
        self, client: Client, sink: str, patience_s: float, *, is_v2: bool | None = None
    ) -> None:
        self._client = client
        self._sink = sink
        self._patience_s = patience_s
        self._is_v2 = is_v2

    @property
    def is_v2(self) -> bool:
        """True if the end of a transaction bumps the epoch. A lease keeps its protocol: the abort
        of one proves nothing about a decision by the other."""
        if self._is_v2 is not None:
            return self._is_v2
        features = self._client.cluster.finalized_feature
        return features(_TRANSACTION_VERSION) >= _TRANSACTION_V2

    async def init_driver(
        self,
        expected: ProducerIdAndEpoch = NO_PRODUCER,
        timeout_ms: int = DRIVER_TIMEOUT_MS,
    ) -> ProducerIdAndEpoch:
        """Fence the last lease, and abort its transaction if it is open. With an expected producer
        this takes no new lease: it is PRODUCER_FENCED if there is a later one (KIP-360)."""
        name = driver_id(self._sink)
        try:
            return await self._init(name, timeout_ms, expected=expected)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            return await self._init(name, await self._max_timeout_ms(), expected=expected)

    async def init_task(self, transactional_id: str) -> PreparedTransaction:
        """Begin with a task's transactional id. Its transaction has no timeout with two-phase
        commit, otherwise the longest that the brokers allow."""
        try:
            producer = await self._init(transactional_id, _MAX_TIMEOUT_MS, two_phase_commit=True)
            return PreparedTransaction(transactional_id, producer, two_phase_commit=True)
        except KafkaError as error:
            if error.code not in _NO_TWO_PHASE_COMMIT:
                raise
            producer = await self._init(transactional_id, await self._max_timeout_ms())
            return PreparedTransaction(transactional_id, producer)

    async def _init(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        two_phase_commit: bool = False,
        expected: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> ProducerIdAndEpoch:
        requests = self._requests(transactional_id, timeout_ms, two_phase_commit=two_phase_commit)
        producer, _prepared = await requests.init_producer_id(expected)
        return producer

    async def end_driver(
        self, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> ProducerIdAndEpoch | None:
        """End the driver's transaction. Return the producer of its next one; None if that needs
        InitProducerId."""
        requests = self._requests(driver_id(self._sink), DRIVER_TIMEOUT_MS)
        return await requests.end(producer, commit=commit, is_v2=self.is_v2)

    async def confirm_driver(self, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Return the driver's next producer. KafkaError PRODUCER_FENCED if another driver has been
        initialized.

        The driver aborts a transaction that it has not begun. Below transaction.version 2 that is
        INVALID_TXN_STATE, after the epoch was checked.
        """
        try:
            return await self.end_driver(producer, commit=False) or producer
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE or self.is_v2:
                raise
            return producer

    async def is_current(self, producer: ProducerIdAndEpoch) -> bool:
        """Return False if the driver's lease is over: it decides or has decided, or a later lease
        was taken. Changes nothing, and proves less than `confirm_driver`."""
        now = self._client.cluster.world.clock.monotonic
        deadline = now() + self._patience_s
        while True:
            found = await self._client.admin.describe_transaction(driver_id(self._sink))
            # The producer id may change at the end of a transaction, when epochs are exhausted.
            if found.state not in _ENDING or now() > deadline:
                break
            await asyncio.sleep(_ENDING_POLL_S)
        if (found.producer_id, found.producer_epoch) != producer:
            return False
        return found.state != OPEN if self.is_v2 else found.state == _EMPTY

    async def commit_all(self, transactions: Iterable[PreparedTransaction]) -> None:
        """Commit the transactions of a decision. KafkaError with a code of NOT_OPEN if one was
        aborted."""
        await _all(map(self._commit, transactions))

    async def _commit(self, transaction: PreparedTransaction) -> None:
        try:
            await self._end(transaction, commit=True)
        except KafkaError as error:
            if error.code not in NOT_OPEN or not await self._is_committed(transaction):
                raise

    async def _is_committed(self, transaction: PreparedTransaction) -> bool:
        """Return True if an earlier commit was executed that EndTxn does not recognize.

        It was sent in the protocol of another transaction.version, before the brokers were upgraded
        or downgraded. Or the transactional id has expired since, which an open transaction never
        does: with two-phase commit, nothing but its commit has ended it.
        """
        try:
            found = await self._client.admin.describe_transaction(transaction.transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return transaction.two_phase_commit
        bumped = found.producer_epoch - transaction.producer.epoch
        is_same = found.producer_id == transaction.producer.id and bumped in (0, 1)
        return is_same and found.state in _COMMITTED

    async def abort_all(self, transactions: Iterable[PreparedTransaction]) -> None:
        await _all(map(self._abort, transactions))

    async def _abort(self, transaction: PreparedTransaction) -> None:
        try:
            await self._end(transaction, commit=False)
        except KafkaError as error:
            if error.code not in NOT_OPEN:
                raise

    async def _end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        requests = self._requests(transaction.transactional_id, _MAX_TIMEOUT_MS)
        await requests.end(transaction.producer, commit=commit, is_v2=self.is_v2)

    async def _max_timeout_ms(self) -> int:
        """Return transaction.max.timeout.ms, which all brokers should have in common."""
        admin, brokers = self._client.admin, self._client.cluster.metadata.brokers
        try:
            configs = await admin.describe_configs(ConfigResourceType.BROKER, str(min(brokers)))
        except KafkaError as error:
            if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            return _MAX_TIMEOUT_MS
        values = [entry.value for entry in configs if entry.name == "transaction.max.timeout.ms"]
        return int(values[0]) if values and values[0] else _MAX_TIMEOUT_MS

    def _requests(
        self, transactional_id: str, timeout_ms: int, *, two_phase_commit: bool = False
    ) -> TransactionRequests:
        config = TransactionConfig(
            transactional_id, timeout_ms, two_phase_commit, max_block_s=self._patience_s
        )
        cluster = self._client.cluster
        if len(_remembered) >= _MAX_REMEMBERED:
            _remembered.clear()
        return _remembered.setdefault((cluster, config), TransactionRequests(cluster, config))


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run both. If one fails, cancel the other one, and raise the error when it has ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(first), group.create_task(second)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return tasks[0].result(), tasks[1].result()


async def _all(ends: Iterable[Awaitable[None]]) -> None:
    """Wait for all, also if some fail, then raise the first error."""
    for result in await asyncio.gather(*ends, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
