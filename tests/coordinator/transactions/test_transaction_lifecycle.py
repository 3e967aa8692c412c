"""Transactions from their first partition to their completion, in each transaction.version."""

from __future__ import annotations

import pytest

from penstock.coordinator.runtime.step import MARKER_RECORD, PLAIN, Record, Ticket, marker_batch
from penstock.coordinator.transactions.machine import NEEDS_PRODUCER_ID
from penstock.coordinator.transactions.records import decode
from penstock.coordinator.transactions.table import WriteMarkers
from penstock.coordinator.transactions.transaction import Producer, TransactionState
from penstock.errors import ErrorCode, ProtocolError
from penstock.protocol.internal.coordinator_logs import TRANSACTION_LOG
from penstock.protocol.internal.transaction_records import TransactionLogKey, TransactionLogValue
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.coordinator.transactions.transaction_world import (
    A0,
    A1,
    B0,
    FIRST_PRODUCER_ID,
    ID,
    NO_PRODUCER,
    WALL_MS,
    World,
    code,
    producer_of,
)

S = TransactionState
P = FIRST_PRODUCER_ID


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_version_2_bumps_the_epoch_at_its_end(commit: bool) -> None:
    world = World()
    producer = world.new_producer()
    assert producer == (P, 0)
    assert world.add(producer, A0, A1) == ErrorCode.NONE
    assert world.add(producer, B0) == ErrorCode.NONE
    world.now_ms = 7
    response = world.end(producer, commit)
    assert (code(response), producer_of(response)) == (ErrorCode.NONE, (P, 1))
    assert world.markers == [WriteMarkers(ID, P, 1, commit, 0, (A0, A1, B0), 2)]
    world.write_markers()
    prepare, complete = (
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    )
    assert world.written() == [S.EMPTY, S.ONGOING, S.ONGOING, prepare, complete]
    done = world.of()
    assert (done.producer, dict(done.partitions)) == ((P, 1), {})
    assert (done.start_ms, done.update_ms) == (WALL_MS, WALL_MS + 7)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_transaction_of_an_older_client_keeps_its_epoch(
    commit: bool, transaction_version: int
) -> None:
    world = World(transaction_version=transaction_version)
    producer = world.new_producer()
    assert world.add(producer, A0, version=0) == ErrorCode.NONE
    response = world.end(producer, commit, version=4)
    assert (code(response), producer_of(response)) == (ErrorCode.NONE, NO_PRODUCER)
    assert world.markers == [WriteMarkers(ID, P, 0, commit, 0, (A0,), 0)]
    world.write_markers()
    assert world.of().producer == producer
    # A retry and the next transaction have the same epoch.
    assert code(world.end(producer, commit, version=4)) == ErrorCode.NONE
    assert world.transaction(producer, commit, version=4) == producer


def test_an_empty_abort_bumps_the_epoch_and_needs_no_markers() -> None:
    world = World()
    producer = world.new_producer()
    world.now_ms = 5
    for epoch in (1, 2, 3):
        producer = world.ended(producer, commit=False)
        assert producer == (P, epoch)
    assert not world.effects
    assert world.written() == [S.EMPTY, *[S.PREPARE_ABORT, S.COMPLETE_ABORT] * 3]
    assert world.of().start_ms == WALL_MS + 5
    assert world.add(producer) == ErrorCode.NONE


def test_a_retry_of_end_txn_gets_the_same_producer() -> None:
    world = World()
    producer = world.new_producer()
    world.add(producer)
    bumped = world.ended(producer)
    assert code(world.end(producer)) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    for _ in range(3):
        assert world.ended(producer) == bumped
    world.reload()
    assert world.ended(producer) == bumped


def test_only_requests_that_are_repeated_anyway_are_answered_before_the_commit() -> None:
    world = World()
    producer = world.new_producer()
    world.add(producer)
    request = EndTxnRequest(transactional_id=ID, producer_id=P, producer_epoch=0, committed=True)
    init = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1)
    machine, now, ticket = world.machine, world.now, Ticket(0)
    fence = machine.init_producer_id(init, None, ticket, now)
    assert (fence.writes, fence.immediate) == (True, False)
    fence.undo.revert()
    assert not machine.add_partitions(ID, P, 0, (A0,), True, 2, ticket, now).immediate
    assert not machine.add_partitions(ID, P, 9, (A0,), False, 2, ticket, now).immediate
    assert not machine.end_txn(request, 5, None, ticket, now).immediate
    assert machine.end_txn(request, 5, None, ticket, now).immediate
    assert machine.add_partitions(ID, P, 1, (A0,), False, 2, ticket, now).immediate
    assert machine.init_producer_id(init, None, ticket, now).immediate


def test_a_late_end_txn_does_not_end_the_next_transaction() -> None:
    world = World()
    first = world.new_producer()
    second = world.transaction(first)
    world.add(second)
    for commit in (True, False):
        assert code(world.end(first, commit)) == ErrorCode.PRODUCER_FENCED
    assert world.state() is S.ONGOING


def test_partitions_are_added_once() -> None:
    world = World()
    producer = world.new_producer()
    world.add(producer, A1, B0)
    world.now_ms = 3
    world.add(producer, A0, A1)
    written = len(world.log)
    assert world.add(producer, B0, A0) == ErrorCode.NONE
    assert len(world.log) == written
    assert world.of().partitions == {"a": (0, 1), "b": (0,)}
    assert (world.of().start_ms, world.of().update_ms) == (WALL_MS, WALL_MS + 3)
    unknown = A0._replace(partition=9)
    assert world.verify(producer, A0, unknown, B0) == {
        A0: ErrorCode.NONE,
        unknown: ErrorCode.TRANSACTION_ABORTABLE,
        B0: ErrorCode.NONE,
    }


def test_markers_of_an_earlier_transaction_are_ignored() -> None:
    world = World()
    producer = world.new_producer()
    for _ in range(2):
        world.add(producer, version=0)
        world.end(producer, version=4)
        if len(world.effects) == 1:
            world.write_markers()
    first, second = world.effects
    assert first == second, "a client of version 0 has the same epoch again"
    assert not world.machine.markers_written((first,), world.now).writes
    assert world.state() is S.PREPARE_COMMIT
    assert world.machine.markers_written((second,), world.now).writes


def test_many_transactions_complete_in_one_step() -> None:
    world = World()
    names = [f"t{index}" for index in range(5)]
    for name in names:
        producer = world.new_producer(name=name)
        world.add(producer, name=name)
        world.ended(producer, name=name)
    written = len(world.log)
    world.write_markers()
    assert len(world.log) == written + 5
    assert {world.state(name) for name in names} == {S.COMPLETE_COMMIT}


def test_a_new_coordinator_writes_the_markers_again() -> None:
    world = World()
    committed, aborted = world.new_producer(name="c"), world.new_producer(name="a")
    world.add(committed, A0, B0, name="c")
    world.add(aborted, A1, name="a")
    world.ended(committed, name="c")
    world.ended(aborted, commit=False, name="a")
    lost = list(world.markers)
    world.reload()
    assert world.markers == [
        WriteMarkers("c", P, 1, True, 1, (A0, B0), 2),
        WriteMarkers("a", P + 1, 1, False, 1, (A1,), 2),
    ]
    assert not world.machine.markers_written(lost, world.now).writes
    world.write_markers()
    assert (world.state("c"), world.state("a")) == (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


def test_a_prepared_transaction_without_partitions_is_completed_after_loading() -> None:
    """Kafka writes the two records of an empty abort separately."""
    world = World()
    world.ended(world.new_producer(), commit=False)
    world.log.pop()
    world.reload()
    assert not world.effects
    assert world.state() is S.COMPLETE_ABORT


# Producer ids


def test_an_exhausted_epoch_ends_with_a_new_producer_id() -> None:
    world = World()
    world.new_producer()
    exhausted = Producer(P, 32766)
    world.set_producer(exhausted)
    world.add(exhausted)
    request = EndTxnRequest(
        transactional_id=ID, producer_id=P, producer_epoch=32766, committed=True
    )
    step = world.machine.end_txn(request, 5, None, Ticket(0), world.now)
    assert (step.replies[0].response, step.immediate, step.writes) == (
        NEEDS_PRODUCER_ID,
        True,
        False,
    )
    bumped = world.ended(exhausted)
    assert bumped == (P + 1, 0)
    assert world.markers[0].producer_id == P
    assert world.markers[0].producer_epoch == 32767
    # The client may be ahead of the markers.
    assert world.add(bumped) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert code(world.end(bumped)) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.reload()
    assert world.markers[0].producer_epoch == 32767
    world.write_markers()
    assert world.of().producer == bumped
    world.reload()
    assert world.ended(exhausted) == bumped, "a retry is recognized by the previous producer id"
    assert code(world.end(exhausted, commit=False)) == ErrorCode.INVALID_TXN_STATE
    assert world.transaction(bumped) == (P + 1, 1)
    assert code(world.end(exhausted)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_empty_abort_of_an_exhausted_epoch_gets_a_new_producer_id() -> None:
    world = World()
    world.new_producer()
    world.set_producer(Producer(P, 32766))
    assert world.ended(Producer(P, 32766), commit=False) == (P + 1, 0)
    assert world.of().producer == (P + 1, 0)


def test_an_older_client_uses_the_last_epoch_as_long_as_it_likes() -> None:
    world = World(transaction_version=1)
    world.new_producer()
    exhausted = Producer(P, 32766)
    world.set_producer(exhausted)
    for _ in range(2):
        assert world.transaction(exhausted, version=4) == exhausted


# Records


def values(world: World) -> list[tuple[int, TransactionLogValue]]:
    decoded = []
    for record in world.log:
        assert record.value is not None
        value = TRANSACTION_LOG.decode_value(TransactionLogKey(), record.value)
        assert isinstance(value, TransactionLogValue)
        decoded.append((int.from_bytes(record.value[:2], "big"), value))
    return decoded


def test_records_are_flexible_from_transaction_version_1_on() -> None:
    world = World(transaction_version=0)
    producer = world.transaction(world.new_producer(), version=4)
    assert {version for version, _ in values(world)} == {0}
    world.change_settings(transaction_version=1)
    world.log.clear()
    world.transaction(producer, version=4)
    assert {version for version, _ in values(world)} == {1}


def test_records_have_kafkas_fields() -> None:
    world = World()
    producer = world.transaction(world.new_producer())
    world.new_producer()
    assert producer == (P, 1)
    empty, ongoing, prepare, complete, again = (value for _, value in values(world))
    assert empty.transaction_partitions is None, "an Empty record has null partitions"
    assert complete.transaction_partitions == ()
    assert ongoing.transaction_partitions == prepare.transaction_partitions
    assert [v.client_transaction_version for v in (empty, ongoing, prepare, complete, again)] == [
        0, 2, 2, 2, 2,
    ]  # fmt: skip
    assert {v.previous_producer_id for v in (ongoing, prepare, complete, again)} == {P}
    assert [v.transaction_start_timestamp_ms for v in (empty, again)] == [-1, -1]
    assert again.producer_epoch == 2


def test_a_lowered_transaction_version_loses_no_new_producer_id() -> None:
    world = World()
    world.new_producer()
    world.set_producer(Producer(P, 32766))
    world.add(Producer(P, 32766))
    world.change_settings(transaction_version=0)
    bumped = world.ended(Producer(P, 32766))
    world.reload()
    world.write_markers()
    assert world.of().producer == bumped == (P + 1, 0)


def test_unknown_records_are_skipped_and_damaged_ones_refused() -> None:
    world = World()
    world.new_producer()
    record = world.log[0]
    assert record.value is not None
    machine = world.new_machine()
    machine.replay(Record(b"\x00\x09key", b"value"), PLAIN)
    machine.replay(Record(record.key, b"\x00\x09" + record.value[2:]), PLAIN)
    machine.replay(MARKER_RECORD, marker_batch(1, 0, commit=True, coordinator_epoch=0))
    assert set(machine.table.by_id) == set()
    machine.replay(record, PLAIN)
    assert set(machine.table.by_id) == {ID}
    machine.replay(Record(record.key, None), PLAIN)
    assert set(machine.table.by_id) == set()
    with pytest.raises(ProtocolError):
        machine.replay(Record(record.key, record.value[:-3]), PLAIN)
    broken = TransactionLogValue(producer_id=1, transaction_status=7, transaction_partitions=())
    with pytest.raises(ProtocolError, match="unknown state 7"):
        decode(Record(record.key, TRANSACTION_LOG.encode_value(broken)))
