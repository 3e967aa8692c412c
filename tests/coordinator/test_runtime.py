"""The laws of steps that need no runner: undo, the size of a batch, deadlines."""

from __future__ import annotations

from penstock.coordinator.runtime.deadlines import Deadlines
from penstock.coordinator.runtime.step import (
    PLAIN,
    Now,
    Record,
    Ticket,
    Undo,
    batch_bytes,
    marker_batch,
    transactional_batch,
)
from penstock.records.build import build_batch
from tests.coordinator.kv_machine import KvMachine

NOW = Now(0, 1_700_000_000_000)


def test_undo_restores_values_and_absence_in_reverse_order() -> None:
    values = {"a": 1, "b": 2}
    undo = Undo()
    for key, value in (("a", 10), ("c", 30), ("a", 11)):
        undo.save(values, key)
        values[key] = value
    undo.save(values, "b")
    del values["b"]
    undo.revert()
    assert values == {"a": 1, "b": 2}
    undo.revert()
    assert values == {"a": 1, "b": 2}, "a second revert does nothing"


def test_undo_saves_a_key_once() -> None:
    undo = Undo()
    assert [undo.first("group"), undo.first("group"), undo.first("other")] == [True, False, True]


def test_a_reverted_step_leaves_the_machine_as_it_was() -> None:
    machine = KvMachine()
    machine.put([(b"a", b"1")], Ticket(1), NOW)
    machine.watch(Ticket(2), NOW)
    step = machine.put([(b"a", b"2"), (b"b", b"3")], Ticket(3), NOW)
    assert [reply.ticket for reply in step.replies] == [3, 2]
    step.undo.revert()
    assert (machine.values, machine.watchers) == ({b"a": b"1"}, [Ticket(2)])


def test_live_steps_and_the_log_replay_to_the_same_state() -> None:
    live, loaded = KvMachine(), KvMachine()
    steps = [
        live.put([(b"a", b"1"), (b"b", b"2")], Ticket(1), NOW),
        live.put_in_transaction(7, 0, b"a", b"3", Ticket(2), NOW),
        live.end_transaction(7, 0, True, Ticket(3), NOW),
        live.put_in_transaction(7, 1, b"b", b"4", Ticket(4), NOW),
        live.end_transaction(7, 1, False, Ticket(5), NOW),
    ]
    for record, batch in live.replayed:
        loaded.replay(record, batch)
    assert loaded.values == live.values == {b"a": b"3", b"b": b"2"}
    assert [step.batch.control for step in steps] == [False, False, True, False, True]
    assert all(step.writes for step in steps)


def test_a_batch_declares_its_kind() -> None:
    assert (PLAIN.transactional, PLAIN.control, PLAIN.producer_id) == (False, False, -1)
    transactional = transactional_batch(7, 2)
    assert (transactional.transactional, transactional.control) == (True, False)
    marker = marker_batch(7, 2, commit=True, coordinator_epoch=5)
    assert (marker.transactional, marker.control, marker.marker) == (True, True, (True, 5))


def test_the_size_of_a_batch_is_never_underestimated() -> None:
    for count, size in ((1, 0), (1, 1_000_000), (5_000, 20), (300, 300)):
        records = [Record(b"k" * size, b"v" * size) for _ in range(count)]
        built = build_batch([(key, value, (), NOW.wall_ms) for key, value in records])
        assert len(built) <= batch_bytes(records)


def test_an_extended_deadline_is_not_early() -> None:
    deadlines: Deadlines[tuple[str]] = Deadlines()
    deadlines.set(("a",), 10)
    deadlines.set(("b",), 20)
    deadlines.set(("a",), 30)
    assert deadlines.next_ms() == 20
    assert (deadlines.pop_due(25), deadlines.pop_due(25)) == (("b",), None)
    deadlines.set(("a",), 26)
    assert deadlines.next_ms() == 26
    deadlines.cancel(("a",))
    assert (deadlines.next_ms(), deadlines.pop_due(100)) == (None, None)
    deadlines.set(("a",), 40)
    assert deadlines.pop_due(40) == ("a",)


def test_a_restored_deadline_is_the_earlier_one_or_none() -> None:
    deadlines: Deadlines[tuple[str]] = Deadlines()
    before = deadlines.get(("a",))
    deadlines.set(("a",), 10)
    deadlines.restore(("a",), before)
    assert deadlines.next_ms() is None
    deadlines.set(("a",), 10)
    deadlines.set(("a",), 50)
    deadlines.restore(("a",), 10)
    assert deadlines.pop_due(10) == ("a",)
