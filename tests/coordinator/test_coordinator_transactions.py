"""TxnOffsetCommit and markers: who may commit in a transaction, and what becomes of the offsets.

`World` refuses every step that writes once, before it takes it: reverting it must change nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.coordinator.groups.step import GroupStep
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.coordinator.consumer_world import ConsumerWorld
from tests.coordinator.group_world import GROUP, World, state_of, subscription
from tests.coordinator.test_coordinator_sizes import no_records
from tests.coordinator.transaction_world import A, B, end_txn, fetched, txn_commit, txn_request

STABLE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
EMPTY = ((-1, STABLE), (-1, STABLE))


def views(world: World, partition: int = 0) -> tuple[tuple[int, ErrorCode], tuple[int, ErrorCode]]:
    """Return what OffsetFetch returns without and with require_stable; also after a move."""
    seen = [
        (
            fetched(machine, stable=False, partition=partition),
            fetched(machine, stable=True, partition=partition),
        )
        for machine in (world.machine, world.replayed())
    ]
    assert seen[0] == seen[1], "the log says something else"
    return seen[0]


def both(offset: int) -> tuple[tuple[int, ErrorCode], tuple[int, ErrorCode]]:
    return (offset, STABLE), (offset, STABLE)


# Transactions


def test_offsets_are_pending_until_the_marker_commits_them() -> None:
    world = World()
    assert txn_commit(world, A, 5, metadata="note") == ErrorCode.NONE
    assert views(world) == ((-1, STABLE), (-1, UNSTABLE))
    end_txn(world, A)
    assert views(world) == both(5)
    committed = world.machine.groups.offsets.get(GROUP, TopicPartition("t", 0))
    assert committed is not None
    assert (committed.metadata, committed.commit_timestamp_ms) == ("note", world.wall_ms)


def test_an_aborted_transaction_leaves_the_former_offset() -> None:
    world = World()
    world.commit(1)
    txn_commit(world, A, 5)
    assert views(world) == ((1, STABLE), (-1, UNSTABLE))
    end_txn(world, A, commit=False)
    assert views(world) == both(1)


def test_a_marker_without_offsets_is_written() -> None:
    """The log has the producer's state. `end_txn` checks that the step writes."""
    world = World()
    end_txn(world, A)
    assert [batch.producer_id for batch in world.batches] == [A]
    assert world.machine.list_groups() == []


def test_a_marker_ends_the_transaction_of_its_producer_alone() -> None:
    world = World()
    txn_commit(world, A, 5)
    txn_commit(world, B, 6, partition=1)
    end_txn(world, A)
    assert views(world) == both(5)
    assert views(world, 1) == ((-1, STABLE), (-1, UNSTABLE))


def test_one_transaction_commits_offsets_of_several_groups() -> None:
    world = World()
    txn_commit(world, A, 5)
    txn_commit(world, A, 6, group_id="other")
    end_txn(world, A)
    assert (world.committed(), world.committed(group="other")) == (5, 6)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(A, True), (B, True)], 6),
        ([(B, True), (A, True)], 6),
        ([(A, True), (B, False)], 5),
        ([(B, False), (A, True)], 5),
        ([(A, False), (B, True)], 6),
        ([(A, False), (B, False)], 1),
    ],
)
def test_of_two_producers_the_last_record_that_is_committed_counts(
    ends: list[tuple[int, bool]], expected: int
) -> None:
    world = World()
    world.commit(1)
    txn_commit(world, A, 5)
    txn_commit(world, B, 6)
    for producer_id, commit in ends:
        assert views(world)[1] == (-1, UNSTABLE)
        end_txn(world, producer_id, commit=commit)
    assert views(world) == both(expected)


@pytest.mark.parametrize("commit", [True, False])
def test_a_plain_commit_in_an_open_transaction_counts(commit: bool) -> None:
    world = World()
    txn_commit(world, A, 5)
    assert world.commit(6) == ErrorCode.NONE
    assert views(world) == ((6, STABLE), (-1, UNSTABLE))
    end_txn(world, A, commit=commit)
    assert views(world) == both(6)


def test_the_producers_next_transaction_is_another() -> None:
    world = World()
    txn_commit(world, A, 5)
    end_txn(world, A)
    txn_commit(world, A, 6)
    end_txn(world, A, commit=False)
    assert views(world) == both(5)


# Fencing


@pytest.mark.parametrize(
    ("member", "generation", "instance", "code"),
    [
        ("a", 1, None, ErrorCode.NONE),
        ("a", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("a", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("a", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.NONE),
    ],
)
def test_a_producer_names_a_member_of_the_generation_or_none(
    member: str, generation: int, instance: str | None, code: ErrorCode
) -> None:
    world = World()
    (a,) = world.stable_group("a")
    name = a if member == "a" else member
    assert txn_commit(world, A, 5, name, generation, instance=instance) == code
    end_txn(world, A)
    assert views(world) == (both(5) if code is ErrorCode.NONE else EMPTY)


def test_a_replaced_static_member_may_not_commit_in_a_transaction() -> None:
    world = World()
    ticket = world.join(instance="i")
    world.wait(3_000)
    former = world.joined(ticket).member_id
    world.sync(former, 1, {}, instance="i")
    world.join(instance="i")
    assert txn_commit(world, A, 5, former, 1, instance="i") == ErrorCode.FENCED_INSTANCE_ID


def test_transactions_commit_while_the_group_rebalances() -> None:
    """OffsetCommit is refused in the last of these states."""
    world = World()
    a, b = world.stable_group("a", "b")
    world.join(b, protocols={"range": subscription("u")})
    assert world.group.state_name == "PreparingRebalance"
    assert txn_commit(world, A, 5, a, 1) == ErrorCode.NONE
    world.join(a)
    assert world.group.state_name == "CompletingRebalance"
    assert txn_commit(world, A, 6, a, 1) == ErrorCode.ILLEGAL_GENERATION
    assert txn_commit(world, A, 7, a, 2) == ErrorCode.NONE
    assert world.commit(8, a, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_transactional_commit_does_not_extend_the_session() -> None:
    world = World()
    (a,) = world.stable_group("a")
    world.wait(9_000)
    assert txn_commit(world, A, 5, a, 1) == ErrorCode.NONE
    world.wait(2_000)
    assert world.beat(a, 1) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(
    ("member", "epoch", "instance", "code"),
    [
        ("a", 2, None, ErrorCode.NONE),
        ("a", 3, None, ErrorCode.ILLEGAL_GENERATION),
        ("a", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("b", 1, None, ErrorCode.ILLEGAL_GENERATION),
        ("x", 2, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 2, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.NONE),
    ],
)
def test_members_of_the_consumer_protocol_are_fenced_by_their_epoch(
    member: str, epoch: int, instance: str | None, code: ErrorCode, version: int
) -> None:
    """STALE_MEMBER_EPOCH is unknown to producers: it becomes ILLEGAL_GENERATION."""
    world = ConsumerWorld({"t": 2})
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a, b])
    ((_topic, mine),) = a.owned
    assert (a.epoch, b.epoch) == (2, 2)
    assert (
        txn_commit(world, A, 5, member, epoch, instance=instance, partition=mine, version=version)
        == code
    )


def test_a_member_in_an_earlier_epoch_commits_partitions_owned_since() -> None:
    """KIP-1251."""
    world = ConsumerWorld({"t": 2})
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a, b])
    ((_topic, mine),), ((_, theirs),) = a.owned, b.owned
    assert txn_commit(world, A, 5, "a", 1, partition=mine) == ErrorCode.NONE
    assert txn_commit(world, A, 6, "a", 1, partition=theirs) == ErrorCode.ILLEGAL_GENERATION


def test_a_consumer_group_without_members_takes_commits_without_an_epoch() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    a.leave()
    assert txn_commit(world, A, 5) == ErrorCode.NONE
    end_txn(world, A)
    assert views(world) == both(5)
    assert world.consumers.state_name == "Empty"


def test_only_a_commit_without_a_generation_creates_a_group() -> None:
    world = World()
    assert txn_commit(world, A, 5, "a", 1) == ErrorCode.ILLEGAL_GENERATION
    assert (world.log, world.machine.list_groups()) == ([], [])
    assert txn_commit(world, A, 5) == ErrorCode.NONE
    assert [(g.group_id, g.group_state) for g in world.machine.list_groups()] == [(GROUP, "Empty")]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "x"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "m" * 4_097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_a_partition_that_cannot_be_committed_has_its_own_error(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    world = World()
    assert txn_commit(world, A, 5, **fields) == code
    assert (world.log, world.machine.list_groups()) == ([], [])


def test_a_commit_without_a_producer_is_refused() -> None:
    """Its records would be those of a plain commit."""
    world = World()
    with pytest.raises(KafkaError) as refused:
        txn_commit(world, -1, 5)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.log == []


def test_a_commit_that_no_batch_can_hold_is_refused_before_its_records_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr(GroupStep, "write", no_records)
    partition = TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1)
    wide = (TxnOffsetCommitRequest.Topic(name="t", partitions=(partition,) * 100_000),)
    request = txn_request(A, 0, topics=wide)
    with pytest.raises(KafkaError) as refused:
        world.machine.txn_offset_commit(request, world.caller(5), world.new_ticket(), world.now)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert world.machine.list_groups() == []


# Records


def test_records_are_those_of_a_plain_commit_in_a_batch_of_the_transaction() -> None:
    world = World()
    txn_commit(world, A, 5, producer_epoch=4)
    (key,) = (record.key for record in world.log)
    world.commit(6)
    assert [record.key for record in world.log] == [key] * 2
    first, second = world.batches
    assert (first.producer_id, first.producer_epoch, first.transactional) == (A, 4, True)
    assert (second.producer_id, second.transactional) == (-1, False)


def test_a_marker_step_has_no_records_but_is_written() -> None:
    world = World()
    txn_commit(world, A, 5)
    before = state_of(world.machine)
    step = world.machine.write_marker(A, 3, True, 9, world.new_ticket(), world.now)
    assert (step.records, step.writes) == ((), True)
    assert (step.batch.producer_id, step.batch.producer_epoch) == (A, 3)
    assert step.batch.marker is not None
    assert (step.batch.marker.commit, step.batch.marker.coordinator_epoch) == (True, 9)
    step.undo.revert()
    assert state_of(world.machine) == before


def test_a_reverted_marker_keeps_the_order_of_transactions() -> None:
    world = World()
    txn_commit(world, A, 5)
    txn_commit(world, B, 6)
    world.machine.write_marker(A, 0, True, 3, world.new_ticket(), world.now).undo.revert()
    end_txn(world, B)
    end_txn(world, A)
    assert views(world) == both(6)


def test_a_partition_twice_in_a_request_counts_the_last_time() -> None:
    world = World()
    partitions = tuple(
        TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=offset)
        for offset in (5, 6)
    )
    wide = (TxnOffsetCommitRequest.Topic(name="t", partitions=partitions),)
    request, ticket = txn_request(A, 0, topics=wide), world.new_ticket()
    world.run(lambda: world.machine.txn_offset_commit(request, world.caller(5), ticket, world.now))
    end_txn(world, A)
    assert views(world) == both(6)
