"""InitProducerId of a transactional id: which producer the client gets. PURE.

A new client fences earlier ones: it gets a bumped epoch. If their transaction is still ongoing, it
is aborted first, and the client retries (CONCURRENT_TRANSACTIONS) until its markers are written. A
client that recovers from an error passes its own producer (KIP-360): it is fenced if another client
was initialized since, and a retry whose response was lost gets the same producer again. A client
that keeps a prepared transaction (KIP-939) gets a bumped epoch and learns the transaction's
producer, which it compares with that of its external transaction manager.

Unlike Kafka, a client that passes a fenced producer does not abort the transaction of the client
that fenced it: it gets PRODUCER_FENCED at once, not with its next attempt.
"""

from __future__ import annotations

from penstock.coordinator.transactions.ending import fence
from penstock.coordinator.transactions.step import TransactionStep
from penstock.coordinator.transactions.table import TransactionSettings
from penstock.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    NO_TIMEOUT_MS,
    Producer,
    Transaction,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def init_producer_id(
    step: TransactionStep, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """KafkaError: the request is refused."""
    transactional_id = _check(request, step.table.settings)
    passed = _passed_producer(request)
    timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
    transaction = step.table.by_id.get(transactional_id)
    if transaction is None:
        producer = Producer(step.new_producer_id(), 0)
        created = Transaction(
            transactional_id,
            *producer,
            timeout_ms,
            step.wall_ms,
            previous_producer_id=producer.id,
        )
        step.write(created)
        return _response(producer)
    if transaction.is_prepared:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being completed"
        )
    is_kept = transaction.is_ongoing and request.keep_prepared_txn
    if transaction.is_ongoing and not is_kept:
        _check_current(transaction, passed)
        fence(step, transaction)
        step.log(
            f"transactional id {transactional_id}: a new producer was initialized; aborting the "
            f"transaction of producer id {transaction.producer_id}, epoch "
            f"{transaction.producer_epoch}"
        )
        return InitProducerIdResponse(
            error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=NO_PRODUCER_EPOCH
        )
    producer, last_epoch = _next_producer(step, transaction, passed)
    if is_kept:
        step.write(
            transaction.kept(
                producer,
                last_epoch=last_epoch,
                wall_ms=step.wall_ms,
                two_phase=request.enable2_pc,
            )
        )
        return _response(producer, Producer(transaction.producer_id, transaction.producer_epoch))
    step.write(
        transaction.initialized(
            producer, last_epoch=last_epoch, timeout_ms=timeout_ms, wall_ms=step.wall_ms
        )
    )
    return _response(producer)


def _check(request: InitProducerIdRequest, settings: TransactionSettings) -> str:
    """Return the transactional id."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if request.enable2_pc and not settings.two_phase_commit:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transaction.two.phase.commit.enable is false",
        )
    if request.keep_prepared_txn and not (
        settings.two_phase_commit and settings.transaction_version >= EPOCH_BUMP_VERSION
    ):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "keeping a prepared transaction needs transaction.two.phase.commit.enable and "
            "transaction.version 2",
        )
    if not request.enable2_pc and not (
        0 < request.transaction_timeout_ms <= settings.max_timeout_ms
    ):
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction timeout {request.transaction_timeout_ms} ms is out of range",
        )
    return request.transactional_id


def _passed_producer(request: InitProducerIdRequest) -> Producer | None:
    """Return the producer that the client passes as its own."""
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "only one of producer id and producer epoch is given"
        )
    return Producer(request.producer_id, request.producer_epoch) if has_id else None


def _check_current(transaction: Transaction, passed: Producer | None) -> None:
    if passed is not None and passed != transaction.producer:
        raise _fenced(transaction, passed)


def _next_producer(
    step: TransactionStep, transaction: Transaction, passed: Producer | None
) -> tuple[Producer, int]:
    """Return the client's next producer, and the epoch of the producer that it passed, which a
    retry of this request passes too."""
    current = transaction.producer
    if passed is None:
        return _bumped(step, current), NO_PRODUCER_EPOCH
    if passed == current:
        return _bumped(step, current), current.epoch
    is_same = passed.id == current.id or (
        passed.id == transaction.previous_producer_id and passed.is_exhausted
    )
    if not is_same or passed.epoch != transaction.last_producer_epoch:
        raise _fenced(transaction, passed)
    if current.epoch == MAX_EPOCH:
        return _bumped(step, current), current.epoch
    return current, passed.epoch


def _bumped(step: TransactionStep, producer: Producer) -> Producer:
    if producer.is_exhausted:
        return Producer(step.new_producer_id(), 0)
    return Producer(producer.id, producer.epoch + 1)


def _fenced(transaction: Transaction, passed: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"producer id {passed.id}, epoch {passed.epoch} was fenced by producer id "
        f"{transaction.producer.id}, epoch {transaction.producer.epoch}",
    )


def _response(producer: Producer, ongoing: Producer | None = None) -> InitProducerIdResponse:
    ongoing = ongoing or Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        ongoing_txn_producer_id=ongoing.id,
        ongoing_txn_producer_epoch=ongoing.epoch,
    )
