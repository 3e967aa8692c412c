"""InitProducerId: fencing, recovery with the client's own producer (KIP-360), exhausted epochs."""

from __future__ import annotations

import pytest

from penstock.coordinator.runtime.step import Ticket
from penstock.coordinator.transactions.machine import NEEDS_PRODUCER_ID
from penstock.coordinator.transactions.transaction import (
    NO_TIMEOUT_MS,
    Producer,
    TransactionState,
)
from penstock.errors import ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.coordinator.transactions.transaction_world import (
    A0,
    FIRST_PRODUCER_ID,
    ID,
    TIMEOUT_MS,
    World,
    code,
    producer_of,
)

S = TransactionState
P = FIRST_PRODUCER_ID


def test_a_new_transactional_id_needs_a_producer_id() -> None:
    world = World()
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1)
    step = world.machine.init_producer_id(request, None, Ticket(0), world.now)
    assert (step.replies[0].response, step.immediate, step.writes) == (
        NEEDS_PRODUCER_ID,
        True,
        False,
    )
    assert world.machine.is_empty
    assert world.new_producer() == (P, 0)
    assert world.new_producer() == (P, 1), "a known id keeps its producer id"


@pytest.mark.parametrize(
    ("timeout_ms", "expected"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, ErrorCode.NONE),
        (900_000, ErrorCode.NONE),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (NO_TIMEOUT_MS, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_the_timeout_is_limited(timeout_ms: int, expected: ErrorCode) -> None:
    assert code(World().init(timeout_ms=timeout_ms)) == expected


@pytest.mark.parametrize("producer", [Producer(-1, 3), Producer(3, -1)])
def test_a_producer_id_without_an_epoch_is_invalid(producer: Producer) -> None:
    assert code(World().init(producer)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_new_client_aborts_the_ongoing_transaction_of_the_last(transaction_version: int) -> None:
    world = World(transaction_version=transaction_version)
    old = world.new_producer()
    world.add(old, A0)
    assert code(world.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = world.markers
    assert (markers.producer_epoch, markers.commit) == (1, False)
    assert markers.transaction_version == (2 if transaction_version == 2 else 0)
    assert "a new producer was initialized" in world.log_lines[-1]
    assert code(world.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.written() == [S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.COMPLETE_ABORT]
    assert world.new_producer() == (P, 2), "the epoch of the markers is not given to a client"
    assert world.add(old) == ErrorCode.PRODUCER_FENCED
    assert code(world.end(old, version=4)) == ErrorCode.PRODUCER_FENCED
    assert code(world.end(old)) == ErrorCode.PRODUCER_FENCED


def test_a_client_recovers_with_its_own_producer() -> None:
    world = World()
    first = world.new_producer()
    bumped = world.init(first)
    assert producer_of(bumped) == (P, 1)
    # The response was lost: the retry gets the same.
    assert producer_of(world.init(first)) == (P, 1)
    assert producer_of(world.init(first)) == (P, 1)
    assert producer_of(world.init(producer_of(bumped))) == (P, 2)
    assert code(world.init(first)) == ErrorCode.PRODUCER_FENCED


def test_a_client_cannot_recover_after_another_was_initialized() -> None:
    world = World()
    first = world.new_producer()
    world.init(first)
    world.new_producer()
    assert code(world.init(first)) == ErrorCode.PRODUCER_FENCED
    assert code(world.init(Producer(P, 1))) == ErrorCode.PRODUCER_FENCED


def test_a_fenced_client_does_not_abort_the_transaction_of_another() -> None:
    world = World()
    old, new = world.new_producer(), world.new_producer()
    world.add(new)
    assert code(world.init(old)) == ErrorCode.PRODUCER_FENCED
    assert world.state() is S.ONGOING


def test_a_client_that_lost_the_response_of_end_txn_recovers() -> None:
    world = World()
    producer = world.new_producer()
    bumped = world.transaction(producer)
    for _ in range(2):
        assert producer_of(world.init(producer)) == bumped
    world = World()
    producer = world.new_producer()
    bumped = world.transaction(producer)
    world.reload()
    assert producer_of(world.init(producer)) == bumped, "even at another coordinator"


def test_a_client_of_an_expired_id_gets_a_new_producer_id() -> None:
    world = World()
    assert producer_of(world.init(Producer(7, 3))) == (P, 0)


def test_an_exhausted_epoch_is_replaced_by_a_new_producer_id() -> None:
    world = World()
    world.new_producer()
    world.set_producer(Producer(P, 32765))
    assert world.new_producer() == (P, 32766)
    assert world.new_producer() == (P + 1, 0)
    assert code(world.init(Producer(P, 32766))) == ErrorCode.PRODUCER_FENCED


def test_a_retry_of_a_recovery_with_an_exhausted_epoch_gets_the_same_new_producer() -> None:
    world = World()
    world.new_producer()
    exhausted = Producer(P, 32766)
    world.set_producer(exhausted)
    assert producer_of(world.init(exhausted)) == (P + 1, 0)
    assert producer_of(world.init(exhausted)) == (P + 1, 0)
    assert code(world.init(Producer(P, 32765))) == ErrorCode.PRODUCER_FENCED
    assert world.new_producer() == (P + 1, 1)
    assert code(world.init(exhausted)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("transaction_version", [0, 2])
def test_fencing_an_exhausted_epoch_uses_the_last_epoch_for_markers_only(
    transaction_version: int,
) -> None:
    world = World(transaction_version=transaction_version)
    world.new_producer()
    exhausted = Producer(P, 32766)
    world.set_producer(exhausted)
    world.add(exhausted)
    assert code(world.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.markers[0].producer_epoch == 32767
    world.write_markers()
    assert world.new_producer() == (P + 1, 0)


def test_a_timed_out_client_with_an_exhausted_epoch_recovers_with_a_new_producer_id() -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR."""
    world = World()
    world.new_producer()
    exhausted = Producer(P, 32766)
    world.set_producer(exhausted)
    world.add(exhausted)
    world.wait(60_000)
    world.write_markers()
    assert world.of().producer == (P, 32767)
    assert producer_of(world.init(exhausted)) == (P + 1, 0)


def test_a_timed_out_client_does_not_get_the_last_epoch_by_an_abort() -> None:
    """No marker could have a newer epoch, so that the client's next transaction would hang."""
    world = World()
    world.new_producer()
    exhausted = Producer(P, 32766)
    world.set_producer(exhausted)
    world.add(exhausted)
    world.wait(60_000)
    world.write_markers()
    assert code(world.end(exhausted, commit=False)) == ErrorCode.PRODUCER_FENCED


def test_initialization_changes_the_timeout() -> None:
    world = World()
    world.new_producer(timeout_ms=10)
    world.new_producer(timeout_ms=20)
    assert world.of().timeout_ms == 20


def test_nobody_begins_a_transaction_with_the_last_epoch() -> None:
    """No client gets it, and the marker of such a transaction would need a newer one."""
    world = World()
    world.new_producer()
    world.set_producer(Producer(P, 32766))
    world.add(Producer(P, 32766))
    world.wait(TIMEOUT_MS)
    world.write_markers()
    assert world.of().producer == (P, 32767), "fenced by the timeout"
    assert world.add(Producer(P, 32767)) == ErrorCode.PRODUCER_FENCED
    assert world.verify(Producer(P, 32767), A0) == {A0: ErrorCode.PRODUCER_FENCED}
