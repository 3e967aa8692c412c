"""Participation in two-phase commit (KIP-939): transactions without a timeout, and clients that
keep the prepared transaction of their last run.

Kafka 4.3 implements the first and answers UNSUPPORTED_VERSION to the second.
"""

from __future__ import annotations

import pytest

from penstock.coordinator.transactions.table import WriteMarkers
from penstock.coordinator.transactions.transaction import (
    NO_TIMEOUT_MS,
    Producer,
    TransactionState,
)
from penstock.errors import ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.coordinator.transactions.transaction_world import (
    A0,
    A1,
    FIRST_PRODUCER_ID,
    ID,
    NO_PRODUCER,
    World,
    code,
    producer_of,
)

S = TransactionState
P = FIRST_PRODUCER_ID


def ongoing_of(response: InitProducerIdResponse) -> Producer:
    return Producer(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)


def prepared_world() -> tuple[World, Producer]:
    """Return a world with the prepared transaction of a client that has crashed."""
    world = World(two_phase_commit=True)
    producer = world.new_producer(two_phase=True)
    world.add(producer, A0)
    return world, producer


def test_two_phase_commit_must_be_enabled() -> None:
    world = World()
    assert code(world.init(two_phase=True)) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code(world.init(keep=True)) == ErrorCode.UNSUPPORTED_VERSION
    world = World(two_phase_commit=True, transaction_version=1)
    assert code(world.init(keep=True)) == ErrorCode.UNSUPPORTED_VERSION
    assert code(world.init(two_phase=True)) == ErrorCode.NONE


def test_a_transaction_of_two_phase_commit_has_no_timeout() -> None:
    world, _ = prepared_world()
    world.wait(400 * 24 * 3_600_000)
    assert world.state() is S.ONGOING
    assert world.of().timeout_ms == NO_TIMEOUT_MS
    world.reload()
    world.wait(400 * 24 * 3_600_000)
    assert world.state() is S.ONGOING


def test_any_timeout_is_accepted_with_two_phase_commit() -> None:
    world = World(two_phase_commit=True)
    for timeout_ms in (0, 900_001, NO_TIMEOUT_MS):
        assert code(world.init(two_phase=True, timeout_ms=timeout_ms)) == ErrorCode.NONE
        assert world.of().timeout_ms == NO_TIMEOUT_MS


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [1, 3])
def test_a_restarted_client_ends_the_transaction_that_it_keeps(commit: bool, restarts: int) -> None:
    world, old = prepared_world()
    for restart in range(1, restarts + 1):
        response = world.init(two_phase=True, keep=True)
        assert code(response) == ErrorCode.NONE
        assert producer_of(response) == (P, restart)
        assert ongoing_of(response) == old
        assert world.state() is S.ONGOING
        world.reload()
    client = Producer(P, restarts)
    assert world.ended(client, commit) == (P, restarts + 1)
    # The markers have the epoch after that of the records, not that of the client.
    assert world.markers == [WriteMarkers(ID, P, 1, commit, restarts, (A0,), 2)]
    world.reload()
    world.write_markers()
    assert world.of().producer == (P, restarts + 1)
    assert world.ended(client, commit) == (P, restarts + 1), "a retry"
    assert world.transaction(Producer(P, restarts + 1)) == (P, restarts + 2)


def test_a_late_end_of_a_kept_transaction_does_not_end_the_next() -> None:
    world, _ = prepared_world()
    client = producer_of(world.init(two_phase=True, keep=True))
    bumped = world.ended(client)
    world.write_markers()
    world.add(bumped)
    assert code(world.end(client)) == ErrorCode.PRODUCER_FENCED


def test_earlier_clients_of_a_kept_transaction_are_fenced() -> None:
    world, old = prepared_world()
    first = producer_of(world.init(two_phase=True, keep=True))
    world.init(two_phase=True, keep=True)
    for fenced in (old, first):
        assert code(world.end(fenced)) == ErrorCode.PRODUCER_FENCED
        assert code(world.end(fenced, version=4)) == ErrorCode.PRODUCER_FENCED
        assert world.add(fenced, A1) == ErrorCode.PRODUCER_FENCED
        assert world.verify(fenced, A0) == {A0: ErrorCode.PRODUCER_FENCED}
        assert code(world.init(fenced, keep=True)) == ErrorCode.PRODUCER_FENCED
    assert world.state() is S.ONGOING


def test_a_kept_transaction_can_only_be_ended() -> None:
    world, _ = prepared_world()
    client = producer_of(world.init(two_phase=True, keep=True))
    for partition in (A0, A1):
        assert world.add(client, partition) == ErrorCode.INVALID_TXN_STATE
        assert world.verify(client, partition) == {partition: ErrorCode.INVALID_TXN_STATE}
    assert world.of().partitions == {"a": (0,)}


def test_there_may_be_nothing_to_keep() -> None:
    world = World(two_phase_commit=True)
    for epoch in (0, 1):
        response = world.init(two_phase=True, keep=True)
        assert (producer_of(response), ongoing_of(response)) == ((P, epoch), NO_PRODUCER)
        assert world.state() is S.EMPTY
    world.add(Producer(P, 1))
    bumped = world.ended(Producer(P, 1))
    assert code(world.init(two_phase=True, keep=True)) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    response = world.init(two_phase=True, keep=True)
    assert (producer_of(response), ongoing_of(response)) == ((P, bumped.epoch + 1), NO_PRODUCER)


def test_a_client_that_keeps_nothing_aborts_the_prepared_transaction() -> None:
    world, _ = prepared_world()
    client = producer_of(world.init(two_phase=True, keep=True))
    assert code(world.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.markers == [WriteMarkers(ID, P, 1, False, 0, (A0,), 2)]
    world.write_markers()
    assert world.of().producer == (P, client.epoch + 1)
    assert code(world.end(client, commit=True)) == ErrorCode.INVALID_TXN_STATE
    assert world.new_producer() == (P, client.epoch + 2)


def test_a_retry_of_keeping_gets_the_same_producer() -> None:
    world, old = prepared_world()
    first = world.init(old, two_phase=True, keep=True)
    retry = world.init(old, two_phase=True, keep=True)
    assert producer_of(first) == producer_of(retry) == (P, 1)
    assert ongoing_of(retry) == old


def test_keeping_without_two_phase_commit_keeps_the_timeout() -> None:
    world = World(two_phase_commit=True)
    producer = world.new_producer(timeout_ms=1_000)
    world.add(producer)
    world.now_ms = 400
    client = producer_of(world.init(keep=True, timeout_ms=5_000))
    assert client == (P, 1)
    world.wait(599)
    assert world.state() is S.ONGOING
    world.wait(1)
    assert world.state() is S.PREPARE_ABORT
    assert world.markers[0].producer_epoch == 1
    world.write_markers()
    assert world.of().producer == (P, 2)
    assert code(world.end(client, commit=False)) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("epoch", "kept", "ended"),
    [
        (32764, (P, 32765), (P, 32766)),
        (32765, (P, 32766), (P + 1, 0)),
        (32766, (P + 1, 0), (P + 1, 1)),
    ],
)
def test_exhausted_epochs_of_kept_transactions(
    epoch: int, kept: tuple[int, int], ended: tuple[int, int]
) -> None:
    world = World(two_phase_commit=True)
    world.new_producer(two_phase=True)
    world.set_producer(Producer(P, epoch))
    world.add(Producer(P, epoch))
    response = world.init(two_phase=True, keep=True)
    assert (producer_of(response), ongoing_of(response)) == (kept, (P, epoch))
    world.reload()
    assert world.ended(Producer(*kept)) == ended
    assert world.markers[0].producer_id == P
    assert world.markers[0].producer_epoch == epoch + 1
    world.reload()
    world.write_markers()
    assert world.of().producer == ended
    assert world.ended(Producer(*kept)) == ended, "a retry"


def test_the_epoch_of_a_kept_transaction_is_exhausted_twice() -> None:
    world = World(two_phase_commit=True)
    world.new_producer(two_phase=True)
    world.set_producer(Producer(P, 32766))
    world.add(Producer(P, 32766))
    assert producer_of(world.init(two_phase=True, keep=True)) == (P + 1, 0)
    world.machine.table.by_id[ID] = world.of()._replace(next_producer_epoch=32766)
    client = Producer(P + 1, 32766)
    assert world.ended(client) == (P + 2, 0)
    assert world.markers[0].producer_id == P
    world.write_markers()
    assert world.ended(client) == (P + 2, 0), "a retry"


def test_a_kept_transaction_is_described_by_the_producer_of_its_records() -> None:
    world, old = prepared_world()
    world.init(two_phase=True, keep=True)
    described = world.machine.describe(ID)
    assert (described.producer_id, described.producer_epoch) == old
    assert described.transaction_state == "Ongoing"


def test_an_older_end_txn_ends_a_kept_transaction() -> None:
    world, _ = prepared_world()
    client = producer_of(world.init(two_phase=True, keep=True))
    assert code(world.end(client, version=4)) == ErrorCode.NONE
    assert world.markers == [WriteMarkers(ID, P, 0, True, 0, (A0,), 0)]
    world.write_markers()
    assert world.of().producer == client
    assert code(world.end(client, version=4)) == ErrorCode.NONE


@pytest.mark.parametrize("reloads", [False, True])
def test_a_client_that_turns_two_phase_commit_on_has_no_timeout_any_more(reloads: bool) -> None:
    """The transaction that it finds began with a timeout."""
    world = World(two_phase_commit=True)
    world.add(world.new_producer(), A0)
    client = producer_of(world.init(two_phase=True, keep=True))
    if reloads:
        world.reload()
    world.wait(24 * 3_600_000)
    assert world.state() is S.ONGOING, "the outside coordinator decides"
    client = world.ended(client, commit=False)
    world.write_markers()
    world.add(client, A0)
    world.wait(24 * 3_600_000)
    assert world.state() is S.ONGOING
