"""The end of transactions: EndTxn, fencing and completion. PURE.

The outcome of a transaction is decided by its Prepare record. Then markers are written to all its
partitions, and the Complete record follows. A transaction without partitions is complete at once.

EndTxn v5 (KIP-890, transaction.version 2) bumps the epoch: a retry has the epoch before. Results by
state, outcome and epoch of the request; a request with any other epoch is fenced:

                    abort                     commit
                    retry        current      retry        current
    Empty           fenced       empty abort  fenced       invalid state
    Ongoing         fenced       ends         fenced       ends
    Prepare*        concurrent   concurrent   concurrent   concurrent
    CompleteAbort   done         empty abort  invalid      invalid state
    CompleteCommit  invalid      empty abort  done         invalid state

An empty abort is of a client that does not know whether its transaction has begun. EndTxn v0 to v4
has the same epoch in a retry and in the next request, and allows no empty abort:

                    abort                     commit
    Empty           invalid state             invalid state
    Ongoing         ends                      ends
    Prepare*        concurrent                concurrent
    CompleteAbort   done                      invalid state
    CompleteCommit  invalid state             done
"""

from __future__ import annotations

from penstock.coordinator.transactions.step import TransactionStep
from penstock.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    Producer,
    Transaction,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

# From this version on EndTxn bumps the epoch, and the response has the new producer.
_EPOCH_BUMP_API_VERSION = 5

_NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def end_txn(step: TransactionStep, request: EndTxnRequest, version: int) -> EndTxnResponse:
    """KafkaError: the request is refused."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    transaction = step.table.by_id.get(request.transactional_id)
    if transaction is None:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"there is no transactional id {request.transactional_id}",
        )
    sent = Producer(request.producer_id, request.producer_epoch)
    if version < _EPOCH_BUMP_API_VERSION:
        _end_by_state(step, transaction, sent, request.committed)
        producer = _NO_PRODUCER
    else:
        producer = _end_by_epoch(step, transaction, sent, request.committed)
    return EndTxnResponse(producer_id=producer.id, producer_epoch=producer.epoch)


def _end_by_state(
    step: TransactionStep, transaction: Transaction, sent: Producer, commit: bool
) -> None:
    """EndTxn up to v4: a retry is recognized by the state alone."""
    current = transaction.producer
    if sent.id != current.id:
        raise _wrong_id(transaction, sent)
    if sent.epoch != current.epoch:
        raise _fenced(transaction, sent)
    if transaction.is_prepared:
        raise _concurrent()
    if transaction.is_ongoing:
        _prepare(step, transaction, commit, current, 0, transaction.producer_epoch)
    elif not transaction.is_complete or transaction.is_commit != commit:
        raise _invalid_state(transaction, commit)


def _end_by_epoch(
    step: TransactionStep, transaction: Transaction, sent: Producer, commit: bool
) -> Producer:
    """EndTxn from v5 on: a retry is recognized by the epoch. Return the client's new producer.

    While markers are written, a client may already send requests with its new producer, so that
    state is looked at first.
    """
    if transaction.is_prepared:
        raise _concurrent()
    current = transaction.producer
    is_current = sent == current
    # The last epoch is the coordinator's, to fence with: a client must not get it.
    is_retry = (sent == (current.id, current.epoch - 1) and current.epoch != MAX_EPOCH) or (
        sent == (transaction.previous_producer_id, LAST_CLIENT_EPOCH) and current.epoch == 0
    )
    if sent.id != current.id and not is_retry:
        raise _wrong_id(transaction, sent)
    if is_current:
        if commit and not transaction.is_ongoing:
            raise _invalid_state(transaction, commit)
        _end_and_bump(step, transaction, commit)
        return step.table.by_id[transaction.transactional_id].producer
    if not is_retry or not transaction.is_complete:
        raise _fenced(transaction, sent)
    if transaction.is_commit != commit:
        raise _invalid_state(transaction, commit)
    return current


def _end_and_bump(step: TransactionStep, transaction: Transaction, commit: bool) -> None:
    current = transaction.producer
    successor = (
        Producer(step.new_producer_id(), 0)
        if current.is_exhausted
        else Producer(current.id, current.epoch + 1)
    )
    _prepare(
        step, transaction, commit, successor, EPOCH_BUMP_VERSION, _next(transaction.producer_epoch)
    )


def fence(step: TransactionStep, transaction: Transaction) -> None:
    """Abort an ongoing transaction without its producer, whose epoch becomes stale. The new epoch
    is not given to a client, so it may be the last."""
    current = transaction.producer
    _prepare(
        step,
        transaction,
        False,
        Producer(current.id, _next(current.epoch)),
        EPOCH_BUMP_VERSION if _bumps(step) else 0,
        _next(transaction.producer_epoch),
    )


def complete(step: TransactionStep, transactional_id: str) -> None:
    """All partitions of a prepared transaction have their markers."""
    step.write(step.table.by_id[transactional_id].completed(step.wall_ms))


def _bumps(step: TransactionStep) -> bool:
    return step.table.settings.transaction_version >= EPOCH_BUMP_VERSION


def _next(epoch: int) -> int:
    return min(epoch + 1, MAX_EPOCH)


def _prepare(
    step: TransactionStep,
    transaction: Transaction,
    commit: bool,
    successor: Producer,
    version: int,
    marker_epoch: int,
) -> None:
    """Decide the outcome. `version` is the client's transaction.version."""
    step.write(
        transaction.ended(
            commit,
            successor,
            version=version,
            marker_epoch=marker_epoch,
            wall_ms=step.wall_ms,
        )
    )
    if not transaction.partitions:
        complete(step, transaction.transactional_id)


def _concurrent() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being completed")


def _wrong_id(transaction: Transaction, sent: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"transactional id {transaction.transactional_id} belongs to producer id "
        f"{transaction.producer.id}, not {sent.id}",
    )


def _fenced(transaction: Transaction, sent: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"epoch {sent.epoch} of producer id {sent.id} is not its epoch "
        f"{transaction.producer.epoch}",
    )


def _invalid_state(transaction: Transaction, commit: bool) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"a transaction in state {transaction.state.label} cannot "
        f"{'commit' if commit else 'abort'}",
    )
