"""TxnOffsetCommit with the coordinators of groups and of transactions of one broker: verification,
errors by version, both group protocols, and what OffsetFetch sees."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.handlers.fake_node import FakeNode, FakePartition, answer, call
from tests.handlers.group_members import FETCH, GROUP, commit, commit_request, join, waiting
from tests.handlers.txn_producers import (
    TXN_COMMIT,
    FakeVerifier,
    Producer,
    add_offsets,
    code_of,
    end_txn,
    fetched,
    init_producer,
    txn_commit,
    txn_request,
    with_offsets,
    write_marker,
)

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
CONSUMER_HEARTBEAT, DELETE_GROUPS, DELETE_OFFSETS = 68, 42, 47
SOMEONE = Producer(77, 0)


@pytest.mark.parametrize(("is_committed", "offset"), [(True, 5), (False, -1)])
@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_count_when_it_is_committed(
    version: int, is_committed: bool, offset: int
) -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        producer = await init_producer(node)
        if version < 5:
            assert await add_offsets(node, producer) == NONE
        assert await txn_commit(node, producer, 5, version) == NONE
        assert await fetched(node) == (-1, UNSTABLE)
        assert await fetched(node, stable=False) == (-1, NONE)
        await end_txn(node, producer, commit=is_committed, version=version)
        assert await fetched(node) == (offset, NONE)

    with_offsets(test)


def test_a_producer_copies_in_one_transaction_after_the_other() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        producer = await init_producer(node)
        for offset in range(1, 20):
            assert await txn_commit(node, producer, offset) == NONE
            assert await txn_commit(node, producer, offset, partition=1) == NONE
            aborts = offset % 5 == 0
            producer = await end_txn(node, producer, commit=not aborts)
            expected = offset - 1 if aborts else offset
            assert [await fetched(node, index) for index in (0, 1)] == [(expected, NONE)] * 2

    with_offsets(test)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.INVALID_TXN_STATE),
        (3, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_group_that_was_not_added_to_the_transaction_is_refused(
    version: int, code: ErrorCode
) -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        producer = await init_producer(node)
        assert await txn_commit(node, producer, 5, version) == code
        assert partition.batches == []

    with_offsets(test)


@pytest.mark.parametrize("version", [1, 2, 4, 5])
@pytest.mark.parametrize(
    ("answered", "code"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_an_error_of_the_transaction_coordinator_is_that_of_all_partitions(
    answered: ErrorCode, code: ErrorCode, version: int
) -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        verifier.error = answered
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 and code is loading else code
        assert await txn_commit(node, SOMEONE, 5, version) == expected
        assert verifier.asked == [("copier", version >= 5, version >= 4)]
        assert partition.batches == []

    with_offsets(test)


def test_only_the_first_commit_of_a_transaction_is_verified() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        for offset in (5, 6):
            assert await txn_commit(node, SOMEONE, offset) == NONE
        assert len(verifier.asked) == 1
        write_marker(node, SOMEONE)
        assert await txn_commit(node, SOMEONE, 7) == NONE
        assert len(verifier.asked) == 2

    with_offsets(test)


def test_verification_can_be_turned_off_for_clients_that_add_groups_themselves() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        assert await txn_commit(node, SOMEONE, 5, 4) == NONE
        assert verifier.asked == []
        assert await txn_commit(node, Producer(78, 0), 5, 5) == NONE
        assert verifier.asked == [("copier", True, True)]

    with_offsets(test, **{"transaction.partition.verification.enable": "false"})


def test_a_marker_between_verification_and_append_voids_the_verification() -> None:
    """The transaction that was verified has ended: nobody would end the one that begins."""

    async def test(node: FakeNode, partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        verifier.waits = True
        late = waiting(call(node, TXN_COMMIT, 4, txn_request(SOMEONE, 5)))
        await asyncio.sleep(1)
        assert write_marker(node, SOMEONE, commit=False) is None
        verifier.answer()
        assert code_of(await late) == ErrorCode.INVALID_TXN_STATE
        assert len(partition.batches) == 1, "the marker"
        assert await fetched(node) == (-1, NONE)

    with_offsets(test)


def test_the_marker_of_the_last_transaction_delays_the_next_one() -> None:
    """A client of transaction version 2 does not wait for the markers of its last transaction. They
    have the epoch of the next one."""

    async def test(node: FakeNode, _partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        assert await txn_commit(node, SOMEONE, 5) == NONE
        bumped = Producer(SOMEONE.id, SOMEONE.epoch + 1)
        verifier.waits = True
        following = waiting(call(node, TXN_COMMIT, 5, txn_request(bumped, 6)))
        await asyncio.sleep(1)
        assert write_marker(node, bumped, transaction_version=2) is None
        verifier.answer()
        await asyncio.sleep(1)
        assert not following.done()
        assert await fetched(node) == (5, NONE)
        verifier.answer()
        assert code_of(await following) == NONE
        assert await fetched(node) == (-1, UNSTABLE)
        assert write_marker(node, Producer(SOMEONE.id, 2), transaction_version=2) is None
        assert await fetched(node) == (6, NONE)

    with_offsets(test)


def test_markers_that_do_not_end_make_the_client_retry() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        verifier.waits = True
        following = waiting(call(node, TXN_COMMIT, 5, txn_request(SOMEONE, 6)))
        for _ in range(3):
            await asyncio.sleep(1)
            write_marker(node, SOMEONE)
            verifier.answer()
        assert code_of(await following) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(partition.batches) == 3

    with_offsets(test)


def test_a_coordinator_that_moves_during_the_verification_refuses_the_commit() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        verifier.waits = True
        late = waiting(call(node, TXN_COMMIT, 5, txn_request(SOMEONE, 5)))
        await asyncio.sleep(1)
        partition.is_leader = False
        partition.tell()
        verifier.answer()
        assert code_of(await late) == ErrorCode.NOT_COORDINATOR
        assert partition.batches == []

    with_offsets(test)


def test_other_requests_do_not_wait_for_a_verification() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        verifier.waits = True
        late = waiting(call(node, TXN_COMMIT, 5, txn_request(SOMEONE, 5)))
        await asyncio.sleep(1)
        assert await commit(node, 3) == NONE
        assert await fetched(node) == (3, NONE)
        assert not late.done()
        verifier.answer()
        assert code_of(await late) == NONE

    with_offsets(test)


# Partitions


def test_partitions_that_do_not_exist_have_their_own_error() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        producer = await init_producer(node)
        topic, partition = TxnOffsetCommitRequest.Topic, TxnOffsetCommitRequest.Topic.Partition
        topics = (
            topic(
                name="orders",
                partitions=tuple(
                    partition(partition_index=index, committed_offset=5) for index in (0, 9, 1)
                ),
            ),
            topic(name="none", partitions=(partition(partition_index=0, committed_offset=5),)),
        )
        request = txn_request(producer, 0, topics=topics)
        response = await answer(node, TXN_COMMIT, 5, request)
        codes = {
            (t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {
            ("orders", 0): NONE,
            ("orders", 1): NONE,
            ("orders", 9): unknown,
            ("none", 0): unknown,
        }
        await end_txn(node, producer)
        assert [(await fetched(node, index))[0] for index in range(3)] == [5, 5, -1]

    with_offsets(test)


def test_a_commit_of_unknown_partitions_alone_is_not_verified() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await txn_commit(node, SOMEONE, 5, topic="none") == unknown
        assert await txn_commit(node, SOMEONE, 5, partition=9) == unknown
        assert verifier.asked == []

    with_offsets(test)


def test_a_hundred_thousand_partitions_are_refused_and_nothing_is_written() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        node.create("wide", 1_000)
        asked = tuple(
            TxnOffsetCommitRequest.Topic.Partition(partition_index=n % 1_000, committed_offset=n)
            for n in range(100_000)
        )
        topics = (TxnOffsetCommitRequest.Topic(name="wide", partitions=asked),)
        response = await answer(node, TXN_COMMIT, 5, txn_request(SOMEONE, 0, topics=topics))
        codes = {p.error_code for t in response.topics for p in t.partitions}
        assert codes == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert partition.batches == []
        assert await txn_commit(node, SOMEONE, 5) == NONE, "others are not affected"

    with_offsets(test)


# Groups


def test_members_of_the_classic_protocol_are_fenced_by_their_generation() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        FakeVerifier(node)
        member = await join(node)
        assert await txn_commit(node, SOMEONE, 5, joined=member) == NONE
        stale = {"member_id": member.member_id, "generation_id": member.generation_id - 1}
        assert await txn_commit(node, SOMEONE, 6, **stale) == ErrorCode.ILLEGAL_GENERATION
        unknown = {"member_id": "x", "generation_id": member.generation_id}
        assert await txn_commit(node, SOMEONE, 6, **unknown) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await txn_commit(node, SOMEONE, 7, 2) == NONE, "without a member"
        write_marker(node, SOMEONE)
        assert await fetched(node) == (7, NONE)

    with_offsets(test)


def test_members_of_the_consumer_protocol_are_fenced_by_their_epoch() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        FakeVerifier(node)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="member",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
        joined = await answer(node, CONSUMER_HEARTBEAT, 1, request)
        epoch = joined.member_epoch
        for offset, member, named, code in (
            (5, "member", epoch, NONE),
            (6, "member", epoch + 1, ErrorCode.ILLEGAL_GENERATION),
            (6, "x", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            fields = {"member_id": member, "generation_id": named}
            assert await txn_commit(node, SOMEONE, offset, **fields) == code
        write_marker(node, SOMEONE)
        assert await fetched(node) == (5, NONE)

    with_offsets(test)


def test_an_empty_group_id_is_refused() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        verifier = FakeVerifier(node)
        assert await txn_commit(node, SOMEONE, 5, group_id="") == ErrorCode.INVALID_GROUP_ID
        assert verifier.asked == []

    with_offsets(test)


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_a_group_that_is_being_loaded_is_refused(version: int, code: ErrorCode) -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        FakeVerifier(node)
        partition.hold = True
        waiting(call(node, 8, 9, commit_request(3)))
        partition.leader_epoch += 1
        partition.tell()
        assert await txn_commit(node, SOMEONE, 5, version) == code

    with_offsets(test)


# OffsetFetch


@pytest.mark.parametrize("version", range(7, 11))
def test_require_stable_applies_to_each_partition(version: int) -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        FakeVerifier(node)
        topic_id = node.image.topics["orders"].id
        assert await commit(node, 3, partition=1) == NONE
        assert await txn_commit(node, SOMEONE, 5) == NONE
        listed = OffsetFetchRequest.Group.Topic(
            name="orders", topic_id=topic_id, partition_indexes=(0, 1)
        )
        single = OffsetFetchRequest.Topic(name="orders", partition_indexes=(0, 1))
        request = (
            OffsetFetchRequest(group_id=GROUP, topics=(single,), require_stable=True)
            if version < 8
            else OffsetFetchRequest(
                groups=(OffsetFetchRequest.Group(group_id=GROUP, topics=(listed,)),),
                require_stable=True,
            )
        )
        response = await answer(node, FETCH, version, request)
        (topic,) = response.topics if version < 8 else response.groups[0].topics
        assert [(p.committed_offset, p.error_code) for p in topic.partitions] == [
            (-1, UNSTABLE),
            (3, NONE),
        ]

    with_offsets(test)


# Deletion


def test_a_group_with_pending_offsets_can_be_deleted() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        producer = await init_producer(node)
        assert await txn_commit(node, producer, 5) == NONE
        deleted = await answer(node, DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=(GROUP,)))
        assert deleted.results[0].error_code == NONE
        await end_txn(node, producer)
        assert await fetched(node) == (-1, NONE)

    with_offsets(test)


def test_a_deleted_offset_does_not_come_back_with_the_marker() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        producer = await init_producer(node)
        assert await txn_commit(node, producer, 5) == NONE
        assert await txn_commit(node, producer, 6, partition=1) == NONE
        asked = OffsetDeleteRequest.Topic.Partition(partition_index=0)
        topic = OffsetDeleteRequest.Topic(name="orders", partitions=(asked,))
        request = OffsetDeleteRequest(group_id=GROUP, topics=(topic,))
        deleted = await answer(node, DELETE_OFFSETS, 0, request)
        assert deleted.topics[0].partitions[0].error_code == NONE
        await end_txn(node, producer)
        assert [await fetched(node, index) for index in (0, 1)] == [(-1, NONE), (6, NONE)]

    with_offsets(test)
