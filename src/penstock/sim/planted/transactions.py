"""Bugs planted in transactions: in their coordinator, in markers, and in partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from penstock.coordinator.offsets import commit as offset_commit
from penstock.coordinator.offsets import fetch as offset_fetch
from penstock.coordinator.transactions import adding, ending, initializing
from penstock.coordinator.transactions.machine import TransactionMachine
from penstock.coordinator.transactions.transaction import EPOCH_BUMP_VERSION, Transaction
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.log import log as log_module
from penstock.log.log import Log
from penstock.log.producers.state import ProducerStates
from penstock.log.producers.unstable import UnstableTransactions
from penstock.log.producers.verification import VerificationGuards
from penstock.log.segments import LogSegments
from penstock.node.partition.partition import Partition
from penstock.node.shards import txn_markers
from penstock.node.shards.internal_topics import TRANSACTION_TOPIC
from penstock.node.shards.loading import LatestRecords
from penstock.node.shards.shard import Shard
from penstock.sim.harness import replaced

# Of a transaction of two-phase commit, which must not have one.
_TIMEOUT_MS = 1_000


# The coordinator


def markers_leave_before_the_outcome_is_committed() -> AbstractContextManager[None]:
    """Markers are written as soon as the coordinator has appended the outcome, which may get
    lost."""

    def make(release: Any) -> Any:
        def at_once(shard: Shard[Any, Any]) -> None:
            if shard.partition.topic_partition.topic != TRANSACTION_TOPIC:
                release(shard)
                return
            while shard._effects and shard.leads:
                for effect in shard._effects.popleft()[1]:
                    shard._perform(effect)

        return at_once

    return replaced(Shard, "_release_effects", make)


def ends_are_answered_before_they_are_committed() -> AbstractContextManager[None]:
    """The transaction coordinator answers before its records are replicated."""

    def make(reply: Any) -> Any:
        def at_once(shard: Shard[Any, Any], replies: Any) -> None:
            if shard.partition.topic_partition.topic == TRANSACTION_TOPIC:
                shard._replies.deliver(replies)
            else:
                reply(shard, replies)

        return at_once

    return replaced(Shard, "_reply_when_committed", make)


def end_txn_keeps_the_epoch() -> AbstractContextManager[None]:
    """EndTxn v5 does not bump the epoch, as before KIP-890."""

    def keep(step: Any, transaction: Transaction, commit: bool) -> None:
        epoch = transaction.producer_epoch
        ending._prepare(step, transaction, commit, transaction.producer, EPOCH_BUMP_VERSION, epoch)

    return replaced(ending, "_end_and_bump", lambda _original: keep)


def timed_out_producers_are_not_fenced() -> AbstractContextManager[None]:
    """A transaction that has timed out is aborted, and its producer goes on in the same epoch."""

    def abort(step: Any, transaction: Transaction) -> None:
        epoch = transaction.producer_epoch
        ending._prepare(step, transaction, False, transaction.producer, 0, epoch)

    return replaced(ending, "fence", lambda _original: abort)


def new_instances_do_not_fence() -> AbstractContextManager[None]:
    """InitProducerId gives a new instance the epoch of the one before."""
    return replaced(initializing, "_bumped", lambda _original: lambda _step, producer: producer)


def stale_epochs_may_add_partitions() -> AbstractContextManager[None]:
    """The coordinator adds partitions to the transaction of any epoch of the producer."""

    def make(check: Any) -> Any:
        def lenient(transaction: Transaction, producer: Any) -> None:
            check(transaction, transaction.producer._replace(id=producer.id))

        return lenient

    return replaced(adding, "_check_producer", make)


def prepared_transactions_are_not_resumed() -> AbstractContextManager[None]:
    """A new coordinator does not complete the transactions that the last one had begun to end."""

    def make(start: Any) -> Any:
        def forgetful(machine: TransactionMachine, step: Any) -> None:
            for transactional_id in list(machine.table.unstarted):
                if machine.table.by_id[transactional_id].is_prepared:
                    del machine.table.unstarted[transactional_id]
            start(machine, step)

        return forgetful

    return replaced(TransactionMachine, "_start_loaded", make)


def two_phase_transactions_time_out() -> AbstractContextManager[None]:
    """A transaction of two-phase commit is aborted at a timeout (KIP-939)."""

    def make(original: Any) -> Any:
        def due_ms(transaction: Transaction) -> int | None:
            due: int | None = original.fget(transaction)
            if due is None and transaction.is_ongoing:
                return transaction.start_ms + _TIMEOUT_MS
            return due

        return property(due_ms)

    return replaced(Transaction, "due_ms", make)


def kept_transactions_are_aborted() -> AbstractContextManager[None]:
    """InitProducerId aborts a prepared transaction that its client wants to keep (KIP-939)."""

    class NotKept:
        keep_prepared_txn = False

        def __init__(self, request: Any) -> None:
            self._request = request

        def __getattr__(self, name: str) -> Any:
            return getattr(self._request, name)

    def make(init: Any) -> Any:
        return lambda step, request: init(step, NotKept(request))

    return replaced(initializing, "init_producer_id", make)


# Markers


def retried_markers_commit() -> AbstractContextManager[None]:
    """Markers that are sent again commit, also those of aborted transactions."""

    sent: set[tuple[int, int, TopicPartition]] = set()

    def make(request: Any) -> Any:
        def committing(markers: Any) -> Any:
            changed = []
            for effect, partitions in markers:
                names = list(partitions)
                key = (effect.producer_id, effect.producer_epoch, names[0])
                changed.append((replace(effect, commit=effect.commit or key in sent), names))
                sent.add(key)
            return request(changed)

        return committing

    return replaced(txn_markers, "marker_request", make)


def refused_markers_count_as_written() -> AbstractContextManager[None]:
    """The coordinator does not repeat markers that a leader could not write."""
    return replaced(txn_markers, "_without_unneeded", lambda _original: lambda _ending, _failed: {})


def late_markers_end_the_next_transaction() -> AbstractContextManager[None]:
    """A partition accepts a marker of the epoch of its open transaction (before KIP-1228)."""

    def make(check: Any) -> Any:
        def lenient(
            states: ProducerStates,
            producer_id: int,
            producer_epoch: int,
            coordinator_epoch: int,
            _transaction_version: int = 0,
        ) -> None:
            check(states, producer_id, producer_epoch, coordinator_epoch)

        return lenient

    return replaced(ProducerStates, "check_marker", make)


# Partitions


def transactions_are_not_verified() -> AbstractContextManager[None]:
    """A leader appends transactional records without asking the coordinator."""

    def make(append: Any) -> Any:
        def unverified(partition: Partition, records: Any, **options: Any) -> Any:
            return append(partition, records, **{**options, "verify": None})

        return unverified

    return replaced(Partition, "append_transactional", make)


def markers_void_no_verification() -> AbstractContextManager[None]:
    """A verification that a marker has overtaken still counts."""
    return replaced(
        VerificationGuards, "end", lambda _original: lambda _guards, _producer_id, _epoch: None
    )


def transactional_retries_are_appended_again() -> AbstractContextManager[None]:
    """The sequences of transactional batches are not looked at."""

    def make(check: Any) -> Any:
        def lenient(states: ProducerStates, header: Any, **options: Any) -> Any:
            producer = states.producers.get(header.producer_id)
            if (
                header.is_transactional
                and producer is not None
                and producer.txn_first_offset is not None
                and producer.epoch == header.producer_epoch
            ):
                return None
            return check(states, header, **options)

        return lenient

    return replaced(ProducerStates, "check", make)


def stable_offset_ignores_unreplicated_markers() -> AbstractContextManager[None]:
    """The last stable offset passes a transaction whose marker may still be lost."""

    def make(end: Any) -> Any:
        def ended(
            unstable: UnstableTransactions, producer_id: int, first: int, marker: int
        ) -> None:
            end(unstable, producer_id, first, marker)
            unstable._unreplicated.pop(first)
            unstable._find_first()

        return ended

    return replaced(UnstableTransactions, "end", make)


def committed_reads_reach_the_high_watermark() -> AbstractContextManager[None]:
    """read_committed is bounded by the high watermark."""
    return replaced(
        Partition,
        "last_stable_offset",
        lambda _original: property(lambda partition: partition.high_watermark),
    )


@contextlib.contextmanager
def followers_index_no_aborted_transactions() -> Iterator[None]:
    """A follower does not add aborted transactions to its transaction index."""
    is_follower = False

    def make_append(append: Any) -> Any:
        def observed(log: Log, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_follower
            is_follower = True
            try:
                return append(log, *args, **kwargs)
            finally:
                is_follower = False

        return observed

    def make_apply(apply: Any) -> Any:
        def applied(producers: ProducerStates, header: Any, marker: Any, segment: Any) -> None:
            if is_follower:
                producers.apply(header, marker)
            else:
                apply(producers, header, marker, segment)

        return applied

    with (
        replaced(Log, "append_as_follower", make_append),
        replaced(log_module, "apply_batch", make_apply),
    ):
        yield


def aborted_transactions_of_one_segment_count() -> AbstractContextManager[None]:
    """A fetch looks for aborted transactions in the index of its first segment only. A marker may
    be in a later one."""

    def first_segment(segments: LogSegments, first_offset: int, end_offset: int) -> Any:
        entries = segments._segments[segments.floor(first_offset)].txn_index.entries()
        return [
            txn
            for txn in entries
            if txn.last_offset >= first_offset and txn.first_offset < end_offset
        ]

    return replaced(LogSegments, "aborted_transactions", lambda _original: first_segment)


# Offsets of transactions


def pending_offsets_are_lost_by_loading() -> AbstractContextManager[None]:
    """A new group coordinator forgets the offsets of open transactions."""

    def make(selected: Any) -> Any:
        def forgetful(records: LatestRecords) -> Any:
            records._open.clear()
            return selected(records)

        return forgetful

    return replaced(LatestRecords, "selected", make)


def replaced_members_may_commit_in_transactions() -> AbstractContextManager[None]:
    """TxnOffsetCommit does not check the generation of its member (before KIP-447)."""

    def make(find_error: Any) -> Any:
        def lenient(step: Any, asked: Any) -> ErrorCode:
            return ErrorCode.NONE if step.batch.transactional else find_error(step, asked)

        return lenient

    return replaced(offset_commit, "_group_error", make)


def unstable_offsets_are_returned() -> AbstractContextManager[None]:
    """OffsetFetch ignores require_stable."""

    def make(fetch: Any) -> Any:
        return lambda groups, request, _require_stable, version: fetch(
            groups, request, False, version
        )

    return replaced(offset_fetch, "fetch", make)


PLANTED_TRANSACTIONS = (
    markers_leave_before_the_outcome_is_committed,
    ends_are_answered_before_they_are_committed,
    end_txn_keeps_the_epoch,
    timed_out_producers_are_not_fenced,
    new_instances_do_not_fence,
    stale_epochs_may_add_partitions,
    prepared_transactions_are_not_resumed,
    two_phase_transactions_time_out,
    kept_transactions_are_aborted,
    retried_markers_commit,
    refused_markers_count_as_written,
    late_markers_end_the_next_transaction,
    transactions_are_not_verified,
    markers_void_no_verification,
    transactional_retries_are_appended_again,
    stable_offset_ignores_unreplicated_markers,
    committed_reads_reach_the_high_watermark,
    followers_index_no_aborted_transactions,
    aborted_transactions_of_one_segment_count,
    pending_offsets_are_lost_by_loading,
    replaced_members_may_commit_in_transactions,
    unstable_offsets_are_returned,
)
