"""Offsets of transactions, replayed from a log that Kafka wrote: pending until the marker, and the
last record of a partition wins."""

from __future__ import annotations

import pytest

from penstock.coordinator.groups.machine import GroupMachine
from penstock.coordinator.groups.step import record
from penstock.coordinator.offsets.committed import Committed
from penstock.coordinator.runtime.step import (
    MARKER_RECORD,
    PLAIN,
    Batch,
    Record,
    marker_batch,
    transactional_batch,
)
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.protocol.internal.classic_group_records import OffsetCommitKey
from penstock.protocol.messages.delete_groups import DeleteGroupsResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.coordinator.group_world import GROUP, World

Logged = tuple[Record, Batch]
KEY = OffsetCommitKey(group=GROUP, topic="t", partition=0)


def offset(value: int | None) -> Record:
    """Return the record of an offset, or its tombstone."""
    committed = None if value is None else Committed(value, -1, "", 1_000).value()
    return record(KEY, committed)


def plain(value: int | None) -> Logged:
    return offset(value), PLAIN


def pending(producer_id: int, value: int) -> Logged:
    return offset(value), transactional_batch(producer_id, 0)


def marker(producer_id: int, commit: bool) -> Logged:
    return MARKER_RECORD, marker_batch(producer_id, 0, commit=commit, coordinator_epoch=0)


A, B = 7, 8
COMMIT_A, ABORT_A, COMMIT_B = marker(A, True), marker(A, False), marker(B, True)


def loaded(*log: Logged) -> World:
    world = World()
    for logged in log:
        world.machine.replay(*logged)
    world.take(world.machine.loaded(world.now))
    return world


def fetched(machine: GroupMachine, *, stable: bool) -> tuple[int, ErrorCode]:
    topic = OffsetFetchRequest.Group.Topic(name="t", partition_indexes=(0,))
    request = OffsetFetchRequest.Group(group_id=GROUP, topics=(topic,))
    ((partition,),) = (t.partitions for t in machine.offset_fetch(request, stable, 9).topics)
    return partition.committed_offset, ErrorCode(partition.error_code)


@pytest.mark.parametrize(
    ("log", "committed"),
    [
        pytest.param([pending(A, 5), COMMIT_A], 5, id="committed"),
        pytest.param([plain(1), pending(A, 5), COMMIT_A], 5, id="committed after a plain one"),
        pytest.param([plain(1), pending(A, 5), ABORT_A], 1, id="aborted"),
        pytest.param([pending(A, 5), pending(A, 6), COMMIT_A], 6, id="the last of a transaction"),
        pytest.param([pending(A, 5), plain(6), COMMIT_A], 6, id="a later plain one wins"),
        pytest.param(
            [pending(A, 5), plain(6), pending(A, 7), COMMIT_A], 7, id="and an even later one"
        ),
        pytest.param([pending(A, 5), pending(B, 6), COMMIT_A, COMMIT_B], 6, id="markers in order"),
        pytest.param(
            [pending(A, 5), pending(B, 6), COMMIT_B, COMMIT_A], 6, id="markers in reverse order"
        ),
        pytest.param(
            [pending(B, 4), pending(A, 5), ABORT_A, COMMIT_B], 4, id="the other was aborted"
        ),
        pytest.param([pending(A, 5), plain(None), COMMIT_A], -1, id="deleted"),
        pytest.param([COMMIT_A, plain(3)], 3, id="a marker without offsets"),
        pytest.param(
            [pending(A, 5), COMMIT_A, pending(A, 9), ABORT_A], 5, id="a second transaction"
        ),
    ],
)
def test_the_last_record_of_a_partition_counts_once_its_transaction_is_committed(
    log: list[Logged], committed: int
) -> None:
    world = loaded(*log)
    assert fetched(world.machine, stable=True) == (committed, ErrorCode.NONE)
    assert list(world.machine.groups.offsets.pending) == []


@pytest.mark.parametrize("log", [[plain(1), pending(A, 5)], [pending(A, 5), plain(1)]])
def test_an_open_transaction_makes_its_partition_unstable(log: list[Logged]) -> None:
    world = loaded(*log)
    assert fetched(world.machine, stable=False) == (1, ErrorCode.NONE)
    assert fetched(world.machine, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def test_a_refused_commit_leaves_pending_offsets_as_they_were() -> None:
    """`World` refuses every step that writes once, before it takes it."""
    world = loaded(plain(1), pending(A, 5), pending(B, 6))
    assert world.commit(9) == ErrorCode.NONE
    world.machine.replay(*COMMIT_B)
    assert fetched(world.machine, stable=False) == (9, ErrorCode.NONE)
    assert fetched(world.machine, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    world.machine.replay(*COMMIT_A)
    assert fetched(world.machine, stable=True) == (9, ErrorCode.NONE)


class CountedPartition(TopicPartition):
    """A partition that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        CountedPartition.lookups += 1
        return super().__hash__()


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_does_not_look_at_each_offset_of_its_transaction(commit: bool) -> None:
    """With 100,000 offsets it held the event loop for 0.3 s."""
    world = loaded(plain(1))
    offsets, committed = world.machine.groups.offsets, Committed(5, -1, "", 1_000)
    for index in range(1_000):
        offsets.pending.put(A, GROUP, CountedPartition("many", index), committed)
    CountedPartition.lookups = 0
    ticket = world.new_ticket()
    step = world.machine.write_marker(A, 0, commit, 0, ticket, world.now)
    assert CountedPartition.lookups < 10
    assert len(offsets.of_group(GROUP)) == (1_001 if commit else 1)
    step.undo.revert()
    assert CountedPartition.lookups < 10
    assert len(offsets.of_group(GROUP)) == 1
    assert len(list(offsets.pending)) == 1_000


def test_a_small_transaction_in_a_large_group_is_reverted() -> None:
    world = loaded(pending(A, 5), pending(B, 6))
    offsets, committed = world.machine.groups.offsets, Committed(5, -1, "", 1_000)
    for index in range(1, 100):
        offsets.put(GROUP, TopicPartition("t", index), committed)
    before = dict(offsets.of_group(GROUP))
    step = world.machine.write_marker(B, 0, True, 0, world.new_ticket(), world.now)
    assert fetched(world.machine, stable=False)[0] == 6
    step.undo.revert()
    assert offsets.of_group(GROUP) == before
    # The order of the records counts, not that of the markers.
    world.machine.replay(*COMMIT_B)
    world.machine.replay(*COMMIT_A)
    assert fetched(world.machine, stable=True) == (6, ErrorCode.NONE)


def test_a_deleted_group_has_no_pending_offsets() -> None:
    world = loaded(pending(A, 5))
    ticket = world.new_ticket()
    world.run(lambda: world.machine.delete_group(GROUP, ticket, world.now))
    assert world.reply(ticket, DeleteGroupsResponse.Result).error_code == ErrorCode.NONE
    world.machine.replay(*COMMIT_A)
    assert GROUP not in world.machine.groups.by_id
    assert world.machine.groups.offsets.get(GROUP, TopicPartition("t", 0)) is None


def test_a_group_with_an_open_transaction_does_not_expire() -> None:
    world = loaded(plain(1), pending(A, 5))
    settings = world.settings
    world.wait(settings.offsets_retention_ms + 2 * settings.offsets_retention_check_interval_ms)
    assert fetched(world.machine, stable=False) == (1, ErrorCode.NONE)
    world.machine.replay(*ABORT_A)
    world.wait(2 * settings.offsets_retention_check_interval_ms)
    assert GROUP not in world.machine.groups.by_id
