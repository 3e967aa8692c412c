"""Transactions of a producer: the order of its requests, and what follows from their errors.

`transaction_state` has the states, `transaction_requests` the requests. The records themselves are
sent by the senders, which ask here before they send a batch and report every batch that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from penstock.client.admin.groups import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.cluster import Cluster
from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.transaction_requests import (
    TransactionConfig,
    TransactionRequests,
    is_transaction_v2,
)
from penstock.client.producer.transaction_state import (
    AbortableTransactionError,
    FatalTransactionError,
    State,
    TransactionAborted,
    TransactionState,
    produce_error,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition

_AUTHORIZATION_FAILED = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class BufferedRecords(Protocol):
    """The producer's records that are not delivered yet."""

    async def flush(self) -> None: ...
    def abort_unsent(self, error: KafkaError) -> None: ...
    def reset_sequences(self) -> None: ...


class Transactions:
    """One operation runs at a time. An operation that timed out or was cancelled may be repeated;
    a commit or an abort whose EndTxn was sent cannot be replaced by the other one."""

    def __init__(
        self, cluster: Cluster, config: TransactionConfig, records: BufferedRecords
    ) -> None:
        self.transactional_id = config.transactional_id
        self._cluster = cluster
        self._config = config
        self._records = records
        self._current = TransactionState(config.transactional_id)
        self._requests = TransactionRequests(cluster, config)
        self._operation = asyncio.Lock()
        self._adding = asyncio.Lock()

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return self._current.producer

    @property
    def is_v2(self) -> bool:
        return self._current.is_v2

    @property
    def is_open(self) -> bool:
        return self._current.is_open

    @property
    def started(self) -> bool:
        return self._current.started

    async def init(self, *, keep_prepared: bool) -> ProducerIdAndEpoch:
        """Return the prepared transaction, or NO_PRODUCER."""
        if keep_prepared and not self._config.two_phase_commit:
            raise ValueError("a prepared transaction needs a producer with two_phase_commit")
        async with self._operation:
            current = self._current
            current.check()
            current.move(State.INITIALIZING)
            try:
                producer, prepared = await self._requests.init_producer_id(
                    self._config.producer, keep_prepared=keep_prepared
                )
            except (AbortableTransactionError, FatalTransactionError) as error:
                if (
                    isinstance(error, AbortableTransactionError)
                    or error.code in _AUTHORIZATION_FAILED
                ):
                    current.move(State.UNINITIALIZED)
                else:
                    self._fail(error)
                raise
            current.producer, current.is_v2 = producer, self._cluster_is_v2()
            self._records.reset_sequences()
            if prepared == NO_PRODUCER:
                current.move(State.READY)
            else:
                self._enter_prepared(prepared)
            return prepared

    def resume(self, prepared: ProducerIdAndEpoch) -> None:
        """Take over a prepared transaction without InitProducerId, to end it."""
        self._current.check()
        self._enter_prepared(prepared)
        self._current.producer, self._current.taken_over = prepared, True
        self._current.is_v2 = self._cluster_is_v2()

    def _enter_prepared(self, prepared: ProducerIdAndEpoch) -> None:
        current = self._current
        current.move(State.PREPARED)
        current.prepared, current.started, current.confirmed = prepared, True, True

    def begin(self) -> None:
        self._current.begin()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        member: ConsumerGroupMetadata,
    ) -> None:
        current = self._current
        async with self._operation:
            current.require_transaction()
            if not offsets:
                return
            try:
                current.started = True
                if not current.is_v2:
                    await self._requests.add_offsets(current.producer, group_id)
                    current.confirmed = True
                await self._requests.commit_offsets(
                    current.producer, offsets, group_id, member, is_v2=current.is_v2
                )
            except (AbortableTransactionError, FatalTransactionError) as error:
                self._fail(error)
                raise
            except (KafkaError, asyncio.CancelledError) as error:
                # The offsets may be in the transaction or not; it must not be committed.
                self._fail(
                    AbortableTransactionError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"the offsets of group {group_id} may not be part of the transaction: "
                        f"{error or 'the call was cancelled'}",
                    )
                )
                raise

    async def prepare(self) -> ProducerIdAndEpoch:
        """Deliver all records; then only `commit`, `abort` and `complete` are allowed."""
        if not self._config.two_phase_commit:
            raise RuntimeError("prepare_transaction needs a producer with two_phase_commit")
        async with self._operation:
            current = self._current
            current.require_transaction()
            await self._records.flush()
            current.check()
            current.move(State.PREPARED)
            current.prepared = current.producer
            return current.prepared

    async def complete(self, prepared: ProducerIdAndEpoch) -> None:
        """Commit the prepared transaction if it is this one, otherwise abort it."""
        self._current.check()
        if self._current.state is not State.PREPARED:
            raise RuntimeError("complete_transaction needs a prepared transaction")
        if prepared == self._current.prepared:
            await self.commit()
        else:
            await self.abort()

    async def commit(self) -> None:
        async with self._operation:
            current = self._current
            current.check()
            before = current.state
            current.move(State.COMMITTING)
            if before is State.IN_TRANSACTION:
                await self._flush_to_commit()
            try:
                await self._end(commit=True)
            except (AbortableTransactionError, FatalTransactionError) as error:
                self._fail(error)
                raise

    async def _flush_to_commit(self) -> None:
        """Deliver all records. If this is cancelled, the transaction is still open."""
        current = self._current
        try:
            await self._records.flush()
        except BaseException:
            if current.state is State.COMMITTING:
                current.move(State.IN_TRANSACTION)
            raise
        current.check()

    async def abort(self) -> None:
        async with self._operation:
            current = self._current
            if current.state is not State.ABORTABLE_ERROR:
                current.check()
            current.move(State.ABORTING)
            self._records.abort_unsent(TransactionAborted())
            await self._records.flush()
            current.check()
            try:
                await self._end(commit=False)
            except FatalTransactionError as error:
                self._fail(error)
                raise
            except AbortableTransactionError as error:
                if error.code is ErrorCode.TRANSACTION_ABORTABLE:
                    fatal = FatalTransactionError(error.code, error.message)
                    self._fail(fatal)
                    raise fatal from error
                current.move(State.ABORTABLE_ERROR)
                current.error = error
                raise

    async def _end(self, *, commit: bool) -> None:
        """End the transaction at the coordinator, and bump the epoch where EndTxn does not."""
        current = self._current
        following = None
        if current.started:
            try:
                following = await self._requests.end(
                    current.producer, commit=commit, is_v2=current.is_v2
                )
            except FatalTransactionError as error:
                if commit or current.is_v2 or current.confirmed:
                    raise
                if error.code is not ErrorCode.INVALID_TXN_STATE:
                    raise
                # The coordinator refused the first request, or a late one may still begin the
                # transaction; another epoch keeps it apart from the next transaction.
                current.epoch_bump_required = True
        is_v2 = self._cluster_is_v2()
        # With transaction.version 2, every transaction has its own epoch, from the first one on.
        upgraded = is_v2 and not current.is_v2
        if following is None and (current.epoch_bump_required or upgraded):
            following, _prepared = await self._requests.init_producer_id(current.producer)
        unknown_sequences = current.taken_over and following is None
        if current.finish(State.UNINITIALIZED if unknown_sequences else State.READY, following):
            self._records.reset_sequences()
        current.is_v2 = is_v2

    def add_partition(self, partition: TopicPartition) -> None:
        """Make a partition part of the transaction, before a record of it is buffered."""
        self._current.add_partition(partition)

    async def wait_until_added(self, partition: TopicPartition) -> None:
        """Return when the transaction has the partition; one request adds all that wait."""
        current = self._current
        if partition in current.added:
            return
        async with self._adding:
            self.check_sending()
            if partition in current.added:
                return
            adding = sorted({*current.to_add, partition})
            # The coordinator may execute a request whose response is lost.
            current.started = True
            try:
                await self._requests.add_partitions(current.producer, adding)
            except (AbortableTransactionError, FatalTransactionError) as error:
                self._fail(error)
                raise
            current.confirmed = True
            current.added.update(adding)
            current.to_add.difference_update(adding)

    def check_sending(self) -> None:
        """Raise if a batch must not be sent."""
        self._current.check()
        if not self._current.is_sending:
            raise TransactionAborted

    @property
    def may_retry(self) -> bool:
        return self._current.is_sending

    def batch_failed(self, error: KafkaError, *, has_sequence: bool) -> None:
        """Handle a batch that will not be delivered.

        A batch with a sequence leaves a gap: the next transaction needs another epoch.
        """
        self._current.epoch_bump_required |= has_sequence
        if not isinstance(error, TransactionAborted):
            self._fail(produce_error(error))

    def _fail(self, error: AbortableTransactionError | FatalTransactionError) -> None:
        self._current.epoch_bump_required |= error.code is ErrorCode.UNKNOWN_PRODUCER_ID
        if self._current.fail(error):
            self._records.abort_unsent(error)

    def _cluster_is_v2(self) -> bool:
        return is_transaction_v2(self._cluster)
