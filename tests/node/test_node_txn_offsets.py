"""Transactional offsets and markers on the shard runtime: fencing by the log, when responses leave,
and the move of a coordinator."""

from __future__ import annotations

import asyncio

import pytest

from penstock.coordinator.runtime.step import Batch, Record
from penstock.errors import ErrorCode, KafkaError
from penstock.node.shards.loading import ShardLoader
from tests.handlers.fake_node import FakeNode, FakePartition, call
from tests.handlers.group_members import commit, waiting
from tests.handlers.txn_producers import (
    TXN_COMMIT,
    FakeVerifier,
    Producer,
    code_of,
    end_txn,
    fetched,
    init_producer,
    txn_commit,
    txn_request,
    with_offsets,
    write_marker,
)
from tests.node.test_node_groups import lead_again, resign

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
A, B = Producer(77, 0), Producer(78, 0)


def test_a_fenced_producer_is_refused_alone() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        newer = Producer(A.id, 3)
        assert await txn_commit(node, newer, 5) == NONE
        assert await txn_commit(node, A, 6) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await txn_commit(node, B, 7, partition=1) == NONE
        assert len(partition.batches) == 2
        write_marker(node, newer)
        assert await fetched(node) == (5, NONE)

    with_offsets(test)


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "transaction_version", "code"),
    [
        (2, 9, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 9, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 9, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 4, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (4, 4, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (3, 5, 1, None),
        (4, 5, 2, None),
        (4, 5, 1, None),
    ],
)
def test_a_fenced_marker_is_refused_and_reverted(
    epoch: int, coordinator_epoch: int, transaction_version: int, code: ErrorCode | None
) -> None:
    """An open transaction of epoch 3, and an earlier one that a coordinator of epoch 5 ended. With
    transaction version 2 a marker has a newer epoch than its transaction (KIP-1228)."""

    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        producer = Producer(A.id, 3)
        write_marker(node, producer, coordinator_epoch=5)
        assert await txn_commit(node, producer, 5) == NONE
        before = len(partition.batches)

        def write() -> None:
            write_marker(
                node,
                Producer(A.id, epoch),
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )

        if code is None:
            write()
        else:
            with pytest.raises(KafkaError) as refused:
                write()
            assert refused.value.code is code
            assert len(partition.batches) == before
            assert await fetched(node) == (-1, UNSTABLE)
            write_marker(node, producer, coordinator_epoch=5)
        assert await fetched(node) == (5, NONE)

    with_offsets(test)


def test_a_marker_without_offsets_is_appended() -> None:
    """The log fences the producer by it."""

    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        assert write_marker(node, Producer(A.id, 4), commit=False) is None
        assert len(partition.batches) == 1
        assert await txn_commit(node, A, 5) == ErrorCode.INVALID_PRODUCER_EPOCH

    with_offsets(test)


def test_a_marker_counts_when_it_is_committed() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        assert await txn_commit(node, A, 5) == NONE
        partition.hold = True
        written = waiting(write_marker(node, A))
        read = asyncio.ensure_future(fetched(node))
        await asyncio.sleep(1)
        assert not written.done()
        assert not read.done()
        partition.commit()
        await written
        assert await read == (5, NONE)

    with_offsets(test)


def test_a_marker_that_is_not_committed_in_time_is_not_acknowledged() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        assert await txn_commit(node, A, 5) == NONE
        partition.hold = True
        with pytest.raises(KafkaError) as refused:
            await write_marker(node, A)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition.hold = False
        assert write_marker(node, A) is None, "the transaction coordinator sends it again"
        assert await fetched(node) == (5, NONE)

    with_offsets(test)


def test_a_response_waits_for_the_commit_of_the_offsets() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        partition.hold = True
        written = waiting(call(node, TXN_COMMIT, 5, txn_request(A, 5)))
        await asyncio.sleep(1)
        assert not written.done()
        partition.commit()
        assert code_of(await written) == NONE

    with_offsets(test)


def test_a_marker_for_a_partition_of_another_broker_is_refused() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        with pytest.raises(KafkaError) as refused:
            node.groups.write_marker(5, A.id, A.epoch, True, 0, 1)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        resign(partition)
        with pytest.raises(KafkaError) as refused:
            write_marker(node, A)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    with_offsets(test)


def test_with_too_few_replicas_in_sync_nothing_changes() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        assert await txn_commit(node, A, 5) == NONE
        partition.leader.enough_in_sync = False
        assert await txn_commit(node, A, 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(KafkaError) as refused:
            write_marker(node, A)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await fetched(node) == (-1, UNSTABLE)
        partition.leader.enough_in_sync = True
        write_marker(node, A)
        assert await fetched(node) == (5, NONE)

    with_offsets(test)


@pytest.mark.parametrize(("is_committed", "offset"), [(True, 5), (False, 1)])
def test_pending_offsets_survive_a_move_of_the_coordinator(is_committed: bool, offset: int) -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        assert await commit(node, 1) == NONE
        assert await txn_commit(node, A, 5) == NONE
        assert await txn_commit(node, B, 6, partition=1) == NONE
        write_marker(node, B)
        resign(partition)
        await lead_again(node, partition)
        assert await fetched(node) == (-1, UNSTABLE)
        assert await fetched(node, stable=False) == (1, NONE)
        assert await fetched(node, 1) == (6, NONE)
        write_marker(node, A, commit=is_committed)
        assert await fetched(node) == (offset, NONE)
        resign(partition)
        await lead_again(node, partition)
        assert await fetched(node) == (offset, NONE)

    with_offsets(test)


def test_a_transaction_goes_on_after_a_move_of_the_coordinator() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        producer = await init_producer(node)
        assert await txn_commit(node, producer, 5) == NONE
        resign(partition)
        assert await txn_commit(node, producer, 6) == ErrorCode.NOT_COORDINATOR
        await lead_again(node, partition)
        assert await txn_commit(node, producer, 6) == NONE
        await end_txn(node, producer)
        assert await fetched(node) == (6, NONE)

    with_offsets(test)


def test_a_coordinator_loads_one_record_of_each_key_of_ended_transactions() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        for offset in range(200):
            assert await txn_commit(node, A, offset, partition=offset % 2) == NONE
            write_marker(node, A, commit=offset % 10 != 9)
        assert await txn_commit(node, B, 300) == NONE
        replayed: list[tuple[Record, Batch]] = []
        loader = ShardLoader(node.world)
        end = partition.log_end_offset
        count = await loader.load(
            partition,  # type: ignore[arg-type]
            end,
            lambda record, batch: replayed.append((record, batch)),
            lambda: True,
        )
        assert count == len(replayed) == 3
        assert [batch.transactional for _record, batch in replayed] == [False, False, True]
        resign(partition)
        await lead_again(node, partition)
        assert await fetched(node, stable=False) == (198, NONE)
        assert await fetched(node, 1) == (197, NONE)

    with_offsets(test)


def test_a_refused_verification_leaves_nothing_behind() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        verifier.error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for producer_id in range(10):
            assert await txn_commit(node, Producer(producer_id, 0), 5) == verifier.error
        assert len(partition.producers._guards) == 0

    with_offsets(test)
