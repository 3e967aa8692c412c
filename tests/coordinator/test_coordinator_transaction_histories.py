"""Random histories of transactional and plain commits, deletions and markers of several producers:
an oracle reads the offsets from the history. The machine, a machine that replays the whole log, and
one that replays what the loader selects of it must agree with it.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.groups.machine import GroupMachine
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.node.shards.loading import LatestRecords, Logged
from tests.coordinator.group_world import GROUP, World
from tests.coordinator.test_coordinator_transaction_removal import delete_offset
from tests.coordinator.transaction_world import end_txn, fetched, txn_commit

PARTITIONS = (0, 1)


class Plain(NamedTuple):
    partition: int


class Delete(NamedTuple):
    partition: int


class Pending(NamedTuple):
    producer_id: int
    partition: int


class End(NamedTuple):
    producer_id: int
    commit: bool


Event = Plain | Delete | Pending | End

partitions, producers = st.sampled_from(PARTITIONS), st.integers(1, 3)
events = st.one_of(
    st.builds(Pending, producers, partitions),
    st.builds(Pending, producers, partitions),
    st.builds(End, producers, st.booleans()),
    st.builds(Plain, partitions),
    st.builds(Delete, partitions),
)


def expected(history: list[Event], partition: int) -> tuple[int, bool]:
    """Return the committed offset, which is the event's number, and whether it is unstable."""
    counted, open_since_delete = -1, False
    for number, event in enumerate(history):
        if isinstance(event, Delete) and event.partition == partition:
            counted, open_since_delete = -1, False
        elif isinstance(event, Plain) and event.partition == partition:
            counted = number
        elif isinstance(event, Pending) and event.partition == partition:
            end = next(
                (
                    later
                    for later in history[number:]
                    if isinstance(later, End) and later.producer_id == event.producer_id
                ),
                None,
            )
            if end is None:
                open_since_delete = True
            elif end.commit:
                counted = number
    return counted, open_since_delete


def apply(world: World, number: int, event: Event) -> None:
    match event:
        case Plain(partition):
            assert world.commit(number, partition=partition) == ErrorCode.NONE
        case Delete(partition):
            if GROUP in world.machine.groups.by_id:
                delete_offset(world, partition)
        case Pending(producer_id, partition):
            code = txn_commit(world, producer_id, number, partition=partition)
            assert code == ErrorCode.NONE
        case End(producer_id, commit):
            end_txn(world, producer_id, commit=commit)


def loaded(world: World) -> GroupMachine:
    """Return a machine that was loaded as the shard runtime does it."""
    machine, latest = world.new_machine(), LatestRecords()
    for offset, (record, batch) in enumerate(zip(world.log, world.batches, strict=True)):
        latest.add(Logged(offset, record, batch))
    offsets = []
    for offset, record, batch in latest.selected():
        offsets.append(offset)
        machine.replay(record, batch)
    assert offsets == sorted(offsets)
    return machine


@given(st.lists(events, max_size=30))
@settings(max_examples=300, deadline=None)
def test_offsets_are_what_the_history_says_also_after_a_move(history: list[Event]) -> None:
    world = World()
    for number, event in enumerate(history):
        apply(world, number, event)
    machines = [world.machine, world.replayed(), loaded(world)]
    for partition in PARTITIONS:
        offset, unstable = expected(history, partition)
        stable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT) if unstable else (offset, ErrorCode.NONE)
        for machine in machines:
            assert fetched(machine, stable=False, partition=partition) == (offset, ErrorCode.NONE)
            assert fetched(machine, stable=True, partition=partition) == stable
    # Open transactions end after the move as they would have ended before it.
    for producer_id in (2, 1, 3):
        history = [*history, End(producer_id, commit=producer_id != 3)]
        for machine in machines:
            step = machine.write_marker(
                producer_id, 0, producer_id != 3, 3, world.new_ticket(), world.now
            )
            assert step.writes
    for partition in PARTITIONS:
        offset, unstable = expected(history, partition)
        assert not unstable
        for machine in machines:
            assert fetched(machine, stable=True, partition=partition) == (offset, ErrorCode.NONE)
            assert list(machine.groups.offsets.pending) == []


@given(st.lists(events, max_size=30))
@settings(max_examples=100, deadline=None)
def test_the_loader_selects_one_record_of_a_key_besides_open_transactions(
    history: list[Event],
) -> None:
    world, latest = World(), LatestRecords()
    for number, event in enumerate(history):
        apply(world, number, event)
    for offset, (record, batch) in enumerate(zip(world.log, world.batches, strict=True)):
        latest.add(Logged(offset, record, batch))
    ended = [record.key for _offset, record, batch in latest.selected() if not batch.transactional]
    assert len(ended) == len(set(ended)) <= len(PARTITIONS)
    assert {partition for _group, partition in world.machine.groups.offsets.pending} == {
        TopicPartition("t", partition)
        for partition in PARTITIONS
        if expected(history, partition)[1]
    }
