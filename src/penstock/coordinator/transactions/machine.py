"""The transaction coordinator's state machine: the transactional ids of one partition of
__transaction_state, on the broker that leads it. PURE.

Each request goes to the module that decides it. The machine's only effect is `WriteMarkers`: it
leaves when the Prepare record is committed. The shell writes the markers, however long it takes,
and calls `markers_written`. If the partition moves meanwhile, the next coordinator writes all of
them again, with its own coordinator epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from functools import partial
from itertools import islice
from typing import Final

from penstock.coordinator.runtime.step import Batch, Now, Record, Step, Ticket
from penstock.coordinator.transactions import adding, ending, initializing, views
from penstock.coordinator.transactions.expiry import Expiry
from penstock.coordinator.transactions.records import decode
from penstock.coordinator.transactions.responses import (
    end_txn_error,
    init_producer_id_error,
    partition_errors,
)
from penstock.coordinator.transactions.step import NeedsProducerId, TransactionStep
from penstock.coordinator.transactions.table import (
    TransactionSettings,
    TransactionTable,
    WriteMarkers,
)
from penstock.coordinator.transactions.transaction import Producer
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import (
    COMPLETIONS_PER_STEP,
    MARKER_COMPLETION_RETRY_MS,
    REFUSED_STEP_RETRY_MS,
    STARTED_MARKERS_PER_STEP,
    STARTED_PARTITIONS_PER_STEP,
    TRANSACTIONAL_IDS_PER_STEP,
)
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.versioned import UnknownRecord
from penstock.protocol.messages.describe_transactions import DescribeTransactionsResponse
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsResponse


class ProducerIdReply(Enum):
    NEEDED = "a new producer id is needed"


# The reply of a request that has changed nothing, because it needs a new producer id. The shell
# allocates one and repeats the request with it.
NEEDS_PRODUCER_ID: Final = ProducerIdReply.NEEDED


class TransactionMachine:
    """A `StateMachine`. Until `loaded`, only `replay` may be called. `read_settings` returns the
    settings as they are now; they may change with the image. The coordinator epoch is the leader
    epoch of the partition."""

    def __init__(
        self, read_settings: Callable[[], TransactionSettings], coordinator_epoch: int
    ) -> None:
        self._read_settings = read_settings
        self.table = TransactionTable(read_settings(), coordinator_epoch)
        self._expiry = Expiry(self.table)
        # Prepared transactions whose markers are all written, and when to complete them.
        self._completions: dict[str, None] = {}
        self._completions_due_ms = 0
        self._now_ms = 0

    # The log and the cluster

    def replay(self, record: Record, batch: Batch, /) -> None:
        """Records of unknown types and versions are skipped. ProtocolError: the record is
        damaged."""
        if batch.marker is not None:
            return
        try:
            transactional_id, transaction = decode(record)
        except UnknownRecord:
            return
        if transaction is None:
            self.table.by_id.pop(transactional_id, None)
        else:
            self.table.by_id[transactional_id] = transaction

    def loaded(self, now: Now, /) -> Step[WriteMarkers]:
        self._expiry.schedule(now.ms)
        self.table.unstarted = dict.fromkeys(self.table.by_id)
        return self.run_due(now)

    def image_changed(
        self, _image: MetadataImage, _deleted_topics: Collection[str], now: Now, /
    ) -> Step[WriteMarkers]:
        """Take new settings. The shell drops markers of deleted topics."""
        self.table.settings = self._read_settings()
        self._expiry.interval_changed(now.ms)
        return self._step(now).build()

    @property
    def is_empty(self) -> bool:
        return not self.table.by_id

    # Requests

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        new_producer_id: int | None,
        ticket: Ticket,
        now: Now,
    ) -> Step[WriteMarkers]:
        """The reply is an InitProducerIdResponse or NEEDS_PRODUCER_ID."""
        step = self._step(now, new_producer_id)
        try:
            step.reply(ticket, initializing.init_producer_id(step, request))
        except KafkaError as error:
            step.reply(ticket, init_producer_id_error(error.code))
            return step.build(immediate=_is_immediate(error))
        except NeedsProducerId:
            return self._needs_producer_id(step, ticket)
        return step.build()

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        verify_only: bool,
        transaction_version: int,
        ticket: Ticket,
        now: Now,
    ) -> Step[WriteMarkers]:
        """The reply is a dict of error codes by partition. `transaction_version` is that of the
        client that adds: 2 or 0."""
        step, producer = self._step(now), Producer(producer_id, producer_epoch)
        try:
            if verify_only:
                results = adding.verify_partitions(step, transactional_id, producer, partitions)
            else:
                adding.add_partitions(
                    step, transactional_id, producer, partitions, transaction_version
                )
                results = partition_errors(partitions, ErrorCode.NONE)
        except KafkaError as error:
            step.reply(ticket, partition_errors(partitions, error.code))
            return step.build(immediate=_is_immediate(error))
        step.reply(ticket, results)
        return step.build()

    def end_txn(
        self,
        request: EndTxnRequest,
        version: int,
        new_producer_id: int | None,
        ticket: Ticket,
        now: Now,
    ) -> Step[WriteMarkers]:
        """The reply is an EndTxnResponse or NEEDS_PRODUCER_ID. It does not wait for the markers."""
        step = self._step(now, new_producer_id)
        try:
            step.reply(ticket, ending.end_txn(step, request, version))
        except KafkaError as error:
            step.reply(ticket, end_txn_error(error.code))
            return step.build(immediate=_is_immediate(error))
        except NeedsProducerId:
            return self._needs_producer_id(step, ticket)
        return step.build()

    @staticmethod
    def _needs_producer_id(step: TransactionStep, ticket: Ticket) -> Step[WriteMarkers]:
        assert not step.records, "a step needs a producer id before it writes"
        step.reply(ticket, NEEDS_PRODUCER_ID)
        return step.build(immediate=True)

    # Administration

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        return views.describe(self.table, transactional_id)

    def list_transactions(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        duration_filter_ms: int,
        pattern: str | None,
        wall_ms: int,
    ) -> Iterator[ListTransactionsResponse.TransactionState | None]:
        return views.list_transactions(
            self.table, states, producer_ids, duration_filter_ms, pattern, wall_ms
        )

    # Markers

    def markers_written(self, effects: Collection[WriteMarkers], now: Now) -> Step[WriteMarkers]:
        """All partitions of these effects have their markers, or do not exist any more: complete
        the transactions. Effects of earlier transactions are ignored. What a step cannot hold, or a
        refused step, is done by `run_due` later."""
        for effect in effects:
            if self.table.markers.get(effect.transactional_id) is effect:
                self._completions[effect.transactional_id] = None
        step = self._step(now)
        self._complete(step)
        return step.build()

    def _complete(self, step: TransactionStep) -> None:
        retry_at_ms = step.now_ms + MARKER_COMPLETION_RETRY_MS
        step.undo.add(partial(setattr, self, "_completions_due_ms", retry_at_ms))
        self._completions_due_ms = step.now_ms
        for transactional_id in list(islice(self._completions, COMPLETIONS_PER_STEP)):
            if not step.has_room:
                break
            step.undo.save(self._completions, transactional_id)
            del self._completions[transactional_id]
            ending.complete(step, transactional_id)

    # Deadlines

    def run_due(self, now: Now, /) -> Step[WriteMarkers]:
        """Start the deadlines and markers of some of the loaded transactions, complete some, abort
        one that has timed out, or do one piece of the expiry."""
        step = self._step(now)
        if self.table.unstarted:
            self._start_loaded(step)
        elif self._completions and self._completions_due_ms <= now.ms:
            self._complete(step)
        else:
            key = self.table.deadlines.pop_due(now.ms)
            if key is None:
                self._expiry.run(step)
            else:
                self._time_out(step, key)
        return step.build()

    def _start_loaded(self, step: TransactionStep) -> None:
        unstarted, started = self.table.unstarted, 0
        for transactional_id in list(islice(unstarted, TRANSACTIONAL_IDS_PER_STEP)):
            del unstarted[transactional_id]
            transaction = self.table.by_id[transactional_id]
            step.start(transaction)
            if transaction.is_prepared:
                started += sum(map(len, transaction.partitions.values()))
                if not transaction.partitions:
                    self._completions[transactional_id] = None
                    self._completions_due_ms = step.now_ms
            if (
                started >= STARTED_PARTITIONS_PER_STEP
                or len(step.effects) >= STARTED_MARKERS_PER_STEP
            ):
                break

    def _time_out(self, step: TransactionStep, key: tuple[str]) -> None:
        # A refused step reverts to this.
        step.undo.add(partial(self.table.deadlines.set, key, step.now_ms + REFUSED_STEP_RETRY_MS))
        transaction = self.table.by_id[key[0]]
        ending.fence(step, transaction)
        step.log(
            f"transactional id {transaction.transactional_id}: the transaction of producer id "
            f"{transaction.producer_id}, epoch {transaction.producer_epoch} has timed out after "
            f"{transaction.timeout_ms} ms; aborting it"
        )

    def next_deadline_ms(self) -> int | None:
        if self.table.unstarted:
            return self._now_ms
        due_ms = self._expiry.due_ms
        if self._completions:
            due_ms = min(due_ms, self._completions_due_ms)
        timeout_ms = self.table.deadlines.next_ms()
        return due_ms if timeout_ms is None else min(due_ms, timeout_ms)

    def _step(self, now: Now, new_producer_id: int | None = None) -> TransactionStep:
        self._now_ms = now.ms
        return TransactionStep(self.table, now, new_producer_id)


def _is_immediate(error: KafkaError) -> bool:
    """Return True if the client repeats the request anyway, so that a reply that rests on a record
    that is lost later does no harm."""
    return error.code is ErrorCode.CONCURRENT_TRANSACTIONS
