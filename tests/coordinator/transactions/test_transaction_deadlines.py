"""Work without a request: timeouts, expiry of transactional ids, and work after loading. All of it
is done in steps of bounded size."""

from __future__ import annotations

import pytest

from penstock.coordinator.transactions import expiry, machine
from penstock.coordinator.transactions.table import WriteMarkers
from penstock.coordinator.transactions.transaction import TransactionState
from penstock.errors import ErrorCode
from penstock.limits import (
    MARKER_COMPLETION_RETRY_MS,
    REFUSED_STEP_RETRY_MS,
    STARTED_MARKERS_PER_STEP,
)
from tests.coordinator.transactions.transaction_world import (
    A0,
    A1,
    FIRST_PRODUCER_ID,
    ID,
    World,
    code,
    producer_of,
    state_of,
)

S = TransactionState
P = FIRST_PRODUCER_ID
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


# Timeouts


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(
    transaction_version: int,
) -> None:
    world = World(transaction_version=transaction_version)
    producer = world.new_producer(timeout_ms=1_000)
    world.wait(5_000)
    assert world.state() is S.EMPTY, "the timeout counts from the first partition"
    world.add(producer, A0)
    world.wait(600)
    world.add(producer, A1)
    world.wait(399)
    assert world.state() is S.ONGOING
    world.wait(1)
    assert world.markers == [
        WriteMarkers(ID, P, 1, False, 0, (A0, A1), 2 if transaction_version == 2 else 0)
    ]
    assert "has timed out after 1000 ms" in world.log_lines[-1]
    assert world.add(producer) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.state() is S.COMPLETE_ABORT
    assert world.add(producer) == ErrorCode.PRODUCER_FENCED
    assert code(world.end(producer, commit=True, version=4)) == ErrorCode.PRODUCER_FENCED


def test_a_client_of_version_2_continues_after_a_timeout() -> None:
    world = World()
    producer = world.new_producer(timeout_ms=1_000)
    world.add(producer)
    world.wait(1_000)
    world.write_markers()
    # It asked for nothing else, so its abort is a retry; a commit must fail.
    assert code(world.end(producer, commit=True)) == ErrorCode.INVALID_TXN_STATE
    assert producer_of(world.end(producer, commit=False)) == (P, 1)
    assert producer_of(world.init(producer)) == (P, 1)


def test_a_transaction_that_has_ended_does_not_time_out() -> None:
    world = World()
    producer = world.new_producer(timeout_ms=1_000)
    world.add(producer)
    world.wait(500)
    bumped = world.ended(producer)
    world.wait(10_000)
    assert world.state() is S.PREPARE_COMMIT
    world.write_markers()
    world.add(bumped)
    world.wait(999)
    assert world.state() is S.ONGOING, "the next one has its own timeout"
    world.wait(1)
    assert world.state() is S.PREPARE_ABORT


def test_a_timeout_is_kept_by_the_next_coordinator() -> None:
    world = World()
    world.add(world.new_producer(timeout_ms=1_000))
    world.wait(700)
    world.reload()
    world.wait(299)
    assert world.state() is S.ONGOING
    world.wait(1)
    assert world.state() is S.PREPARE_ABORT


def test_a_clock_that_is_behind_does_not_prolong_a_transaction_beyond_its_timeout() -> None:
    """The next coordinator's wall clock may be an hour behind (rule 26)."""
    world = World()
    world.add(world.new_producer(timeout_ms=1_000))
    world.wall_ms -= 3_600_000
    world.reload()
    world.wait(1_000)
    assert world.state() is S.PREPARE_ABORT


def test_a_transaction_that_timed_out_while_loading_is_aborted_then() -> None:
    world = World()
    world.add(world.new_producer(timeout_ms=1_000))
    world.now_ms = 5_000
    world.reload()
    assert world.state() is S.PREPARE_ABORT


def test_a_refused_abort_is_repeated_later() -> None:
    world = World()
    world.add(world.new_producer(timeout_ms=1_000))
    world.now_ms = 1_000
    before = dict(world.machine.table.by_id)
    world.machine.run_due(world.now).undo.revert()
    assert world.machine.table.by_id == before
    assert not world.machine.table.markers
    world.wait(REFUSED_STEP_RETRY_MS - 1)
    assert world.state() is S.ONGOING
    world.wait(1)
    assert world.state() is S.PREPARE_ABORT


# Completion


def test_a_refused_completion_is_repeated_later() -> None:
    world = World()
    world.add(world.new_producer())
    world.ended(world.of().producer)
    world.machine.markers_written(tuple(world.markers), world.now).undo.revert()
    assert world.state() is S.PREPARE_COMMIT
    world.wait(MARKER_COMPLETION_RETRY_MS - 1)
    assert world.state() is S.PREPARE_COMMIT
    world.wait(1)
    assert world.state() is S.COMPLETE_COMMIT


def test_completions_are_cut_into_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "COMPLETIONS_PER_STEP", 2)
    world = World()
    names = [f"t{index}" for index in range(5)]
    for name in names:
        producer = world.new_producer(name=name)
        world.add(producer, name=name)
        world.ended(producer, name=name)
    step = world.take(world.machine.markers_written(tuple(world.markers), world.now))
    assert len(step.records) == 2
    assert world.machine.next_deadline_ms() == world.now_ms
    world.wait(0)
    assert {world.state(name) for name in names} == {S.COMPLETE_COMMIT}


# Loading


def test_loaded_transactions_are_started_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRANSACTIONAL_IDS_PER_STEP", 2)
    world = World()
    for index in range(5):
        producer = world.new_producer(name=f"t{index}", timeout_ms=1_000)
        world.add(producer, name=f"t{index}")
        if index % 2:
            world.ended(producer, name=f"t{index}")
    world.markers.clear()
    world.machine = world.replayed()
    world.take(world.machine.loaded(world.now))
    assert len(world.markers) == 1
    # A request meanwhile starts what it needs itself, once.
    world.ended(world.of("t4").producer, name="t4")
    world.wait(0)
    assert sorted(m.transactional_id for m in world.markers) == ["t1", "t3", "t4"]
    world.wait(1_000)
    assert {world.state(f"t{index}") for index in (0, 2)} == {S.PREPARE_ABORT}


def test_markers_of_large_transactions_are_started_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "STARTED_PARTITIONS_PER_STEP", 2)
    world = World()
    for name in ("t", "u"):
        producer = world.new_producer(name=name)
        world.add(producer, A0, A1, name=name)
        world.ended(producer, name=name)
    loaded = world.replayed()
    assert len(loaded.loaded(world.now).effects) == 1
    assert loaded.next_deadline_ms() == world.now_ms
    assert len(loaded.run_due(world.now).effects) == 1


def test_markers_of_many_transactions_are_started_in_pieces() -> None:
    world = World()
    count = 2 * STARTED_MARKERS_PER_STEP + 1
    for index in range(count):
        producer = world.new_producer(name=f"t{index}")
        world.add(producer, name=f"t{index}")
        world.ended(producer, name=f"t{index}")
    loaded = world.replayed()
    steps = [loaded.loaded(world.now), loaded.run_due(world.now), loaded.run_due(world.now)]
    assert [len(step.effects) for step in steps] == [
        STARTED_MARKERS_PER_STEP,
        STARTED_MARKERS_PER_STEP,
        1,
    ]


# Expiry


@pytest.mark.parametrize("end", [None, True, False])
def test_a_transactional_id_expires(end: bool | None) -> None:
    world = World()
    producer = world.new_producer()
    if end is not None:
        world.transaction(producer, commit=end)
    world.wait(7 * DAY_MS - HOUR_MS)
    assert world.machine.table.by_id
    world.wait(2 * HOUR_MS)
    assert world.machine.is_empty
    assert world.written()[-1] is None
    assert world.replayed().is_empty
    assert world.log_lines == [f"transactional id {ID} has expired"]
    assert world.add(producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transactional_id_with_a_transaction_does_not_expire() -> None:
    world = World(two_phase_commit=True)
    ongoing = world.new_producer(name="ongoing", two_phase=True)
    world.add(ongoing, name="ongoing")
    prepared = world.new_producer(name="prepared")
    world.add(prepared, name="prepared")
    world.ended(prepared, name="prepared")
    world.wait(30 * DAY_MS)
    assert set(world.machine.table.by_id) == {"ongoing", "prepared"}


def test_expiry_counts_from_the_last_update() -> None:
    world = World()
    producer = world.new_producer()
    world.wait(6 * DAY_MS)
    world.transaction(producer)
    world.wait(6 * DAY_MS)
    assert not world.machine.is_empty


def test_a_shorter_interval_applies_at_once() -> None:
    world = World(id_expiration_ms=10)
    world.new_producer()
    world.wait(1_000)
    assert not world.machine.is_empty
    world.change_settings(id_expiration_interval_ms=100)
    world.wait(100)
    assert world.machine.is_empty


def test_expiry_is_cut_into_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "TRANSACTIONAL_IDS_PER_STEP", 2)
    world = World(id_expiration_ms=10)
    for index in range(5):
        world.new_producer(name=f"t{index}")
    world.now_ms = HOUR_MS
    sizes = []
    while not world.machine.is_empty:
        before = state_of(world.machine)
        refused = world.machine.run_due(world.now)
        refused.undo.revert()
        assert state_of(world.machine) == before
        assert not world.machine.run_due(world.now).writes, "a refused step is repeated later"
        world.now_ms += REFUSED_STEP_RETRY_MS
        sizes.append(len(world.take(world.machine.run_due(world.now)).records))
    assert sizes == [2, 2, 1]
    assert world.machine.next_deadline_ms() == world.now_ms + HOUR_MS


def test_tombstones_fit_into_a_batch() -> None:
    world = World(id_expiration_ms=10, max_batch_bytes=1_000)
    for index in range(50):
        world.new_producer(name=f"{index:0100}")
    world.now_ms = HOUR_MS
    while not world.machine.is_empty:
        step = world.take(world.machine.run_due(world.now))
        assert sum(len(record.key) for record in step.records) < 1_000


def test_names_do_not_break_log_lines() -> None:
    world = World(id_expiration_ms=10)
    world.new_producer(name="a\nb")
    world.wait(HOUR_MS)
    assert world.log_lines == ["transactional id a\\nb has expired"]
