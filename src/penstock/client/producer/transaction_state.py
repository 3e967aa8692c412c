"""The state of a transactional producer: what it may do, and what an error means for it.

Pure. An abortable error ends the transaction: the application aborts it and may begin another one.
A fatal error ends the producer. `transactions` sends the requests.

        init_transactions          begin          prepare (KIP-939)
    UNINITIALIZED ── INITIALIZING ── READY ── IN_TRANSACTION ── PREPARED
                          │            ▲        │    │            │ │
                          └─ PREPARED  │        │    └─ COMMITTING ◄┘ │
                                       ├────────┼──────────┘          │
                                       └─ ABORTING ◄──────────────────┘
                                             ▲
                                      ABORTABLE_ERROR
"""

from __future__ import annotations

from enum import Enum

from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition


class AbortableTransactionError(KafkaError):
    """The transaction must be aborted; then the producer may begin another one."""


class FatalTransactionError(KafkaError):
    """The producer must be closed: it was fenced, or it may not use its transactional id."""


class TransactionAborted(KafkaError):
    """The record is not written, because its transaction was aborted."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.OPERATION_NOT_ATTEMPTED, "not written, because the transaction was aborted"
        )

    def __reduce__(self) -> tuple[type[KafkaError], tuple[ErrorCode, str]]:
        return KafkaError, (self.code, self.message)


class State(Enum):
    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in an abortable error"
    FATAL_ERROR = "in a fatal error"


_SOURCES = {
    State.UNINITIALIZED: {State.INITIALIZING, State.COMMITTING, State.ABORTING},
    State.INITIALIZING: {State.UNINITIALIZED, State.INITIALIZING},
    State.READY: {State.INITIALIZING, State.COMMITTING, State.ABORTING},
    State.IN_TRANSACTION: {State.READY, State.COMMITTING},
    State.PREPARED: {State.IN_TRANSACTION, State.INITIALIZING, State.UNINITIALIZED},
    State.COMMITTING: {State.IN_TRANSACTION, State.PREPARED, State.COMMITTING},
    State.ABORTING: {
        State.IN_TRANSACTION,
        State.PREPARED,
        State.ABORTABLE_ERROR,
        State.ABORTING,
    },
    State.ABORTABLE_ERROR: {
        State.IN_TRANSACTION,
        State.COMMITTING,
        State.ABORTING,
        State.ABORTABLE_ERROR,
    },
}
_IN_ERROR = (State.ABORTABLE_ERROR, State.FATAL_ERROR)

# A coordinator returns INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED to old request versions.
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ABORTABLE = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
# Errors of AddPartitionsToTxn that are not a single partition's.
_FATAL_TO_ADD = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
# A partition's leader returns INVALID_PRODUCER_EPOCH also to a producer whose transaction timed
# out. That producer is not fenced: EndTxn decides (KIP-588).
_FATAL_TO_PRODUCE = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def coordinator_error(error: KafkaError) -> AbortableTransactionError | FatalTransactionError:
    """Classify the error of a request to a coordinator that is not to be retried."""
    if error.code in _FENCED:
        return FatalTransactionError(ErrorCode.PRODUCER_FENCED, error.message)
    if error.code in _ABORTABLE:
        return AbortableTransactionError(error.code, error.message)
    return FatalTransactionError(error.code, error.message)


def add_partitions_error(error: KafkaError) -> AbortableTransactionError | FatalTransactionError:
    """Classify the error of AddPartitionsToTxn: an error of one partition is abortable."""
    if error.code in _FENCED or error.code in _FATAL_TO_ADD:
        return coordinator_error(error)
    return AbortableTransactionError(error.code, error.message)


def produce_error(error: KafkaError) -> AbortableTransactionError | FatalTransactionError:
    """Classify the error of a batch that is not delivered.

    A retriable error after the last attempt becomes TRANSACTION_ABORTABLE, so that nobody sends
    the record again in the same transaction.
    """
    if isinstance(error, AbortableTransactionError | FatalTransactionError):
        return error
    if error.code in _FATAL_TO_PRODUCE:
        return FatalTransactionError(error.code, error.message)
    if error.code.retriable or error.code is ErrorCode.INVALID_TXN_STATE:
        return AbortableTransactionError(ErrorCode.TRANSACTION_ABORTABLE, str(error))
    return AbortableTransactionError(error.code, error.message)


class TransactionState:
    """The state of one transactional producer and of its current transaction.

    `started` means that the coordinator may know of the transaction, so that it must be ended
    there. With `is_v2` (KIP-890), partition leaders add partitions to the transaction, and every
    EndTxn bumps the epoch; without it, the producer adds them, and bumps the epoch itself by
    InitProducerId after it gave up a batch.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: AbortableTransactionError | FatalTransactionError | None = None
        self.producer = NO_PRODUCER
        self.is_v2 = False
        self.started = False
        # The coordinator has confirmed that it knows of the transaction.
        self.confirmed = False
        self.epoch_bump_required = False
        # The prepared transaction (KIP-939), by the producer id and epoch that wrote it.
        self.prepared = NO_PRODUCER
        # Another producer wrote the prepared transaction, with sequences that are unknown here.
        self.taken_over = False
        # Partitions of the transaction, and partitions that must be added first (never with v2).
        self.added: set[TopicPartition] = set()
        self.to_add: set[TopicPartition] = set()

    @property
    def in_error(self) -> bool:
        return self.state in _IN_ERROR

    @property
    def is_sending(self) -> bool:
        """Return True if batches may be sent and retried."""
        return self.state in (State.IN_TRANSACTION, State.COMMITTING)

    @property
    def is_open(self) -> bool:
        """Return True if a transaction is open and not prepared."""
        return self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    def move(self, target: State) -> None:
        """Enter a state. Raises RuntimeError if the application may not do this now."""
        if self.state not in _SOURCES[target]:
            raise RuntimeError(
                f"the producer of transactional id {self.transactional_id} is {self.state.value}, "
                f"and cannot become {target.value}"
            )
        self.state, self.error = target, None

    def check(self) -> None:
        """Raise the error that the producer is in."""
        if self.in_error and self.error is not None:
            raise type(self.error)(self.error.code, self.error.message)

    def require_transaction(self) -> None:
        """Raise unless a transaction is open and without an error."""
        self.check()
        if self.state is not State.IN_TRANSACTION:
            raise RuntimeError(
                f"the producer of transactional id {self.transactional_id} is {self.state.value}: "
                "begin a transaction first"
            )

    def begin(self) -> None:
        self.check()
        self.move(State.IN_TRANSACTION)

    def add_partition(self, partition: TopicPartition) -> None:
        """Make a partition part of the transaction."""
        if partition in self.added and self.state is State.IN_TRANSACTION:
            return
        self.require_transaction()
        if self.is_v2:
            self.added.add(partition)
            self.started = True
        else:
            self.to_add.add(partition)

    def fail(self, error: AbortableTransactionError | FatalTransactionError) -> bool:
        """Enter the error's state; return True if the state changed.

        An abortable error changes nothing while the transaction is being aborted, and a fatal
        error remains.
        """
        if isinstance(error, FatalTransactionError):
            changed = self.state is not State.FATAL_ERROR
            if changed:
                self.state, self.error = State.FATAL_ERROR, error
            return changed
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self.state, self.error = State.ABORTABLE_ERROR, error
            return True
        return False

    def finish(self, target: State, producer: ProducerIdAndEpoch | None = None) -> bool:
        """Leave the transaction; return True if the producer id or epoch changed."""
        self.move(target)
        self.started = self.confirmed = self.epoch_bump_required = self.taken_over = False
        self.prepared = NO_PRODUCER
        self.added.clear()
        self.to_add.clear()
        changed = producer is not None and producer != self.producer
        if producer is not None:
            self.producer = producer
        return changed
