"""Groups on the shard runtime: when responses leave, and what happens to a shard when its partition
moves or an append fails.

The group machine is the real one; the test controls its partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from penstock.controller.topics.delete import delete_topics
from penstock.coordinator.runtime.step import Batch, Record
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_REMOVALS_PER_STEP, SHARD_LOAD_RECORDS
from penstock.node.partition.partition import Partition
from penstock.node.shards.loading import ShardLoader
from penstock.node.shards.shard_set import positive_hash
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.records.batch import read_header
from penstock.records.build import build_batch, end_transaction_marker
from tests.handlers.fake_node import FakeNode, FakePartition, answer, call, run
from tests.handlers.group_members import (
    COMMIT,
    GROUP,
    JOIN,
    SETTINGS,
    commit,
    commit_request,
    committed,
    heartbeat,
    join,
    join_request,
    leave,
    offsets_partition,
    waiting,
)

DELETE_GROUPS, LIST_GROUPS = 42, 16

Test = Callable[[FakeNode, FakePartition], Coroutine[Any, Any, None]]


def with_groups(test: Test, **settings: str) -> None:
    async def main(node: FakeNode) -> None:
        node.create("orders", 3)
        await test(node, await offsets_partition(node))

    run(main, **SETTINGS, **settings)


def resign(partition: FakePartition) -> None:
    partition.is_leader = False
    partition.tell()


async def lead_again(node: FakeNode, partition: FakePartition) -> None:
    partition.is_leader = True
    partition.leader_epoch += 1
    partition.tell()
    await asyncio.gather(*node.tasks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", 0),
        ("käse-🧀", 1477844892),
        ("orders", 1008770331),
    ],
)
def test_the_hash_of_a_key_is_javas_without_its_sign(text: str, expected: int) -> None:
    assert positive_hash(text) == expected


def test_the_offsets_topic_is_created_with_kafkas_configs() -> None:
    async def main(node: FakeNode) -> None:
        await asyncio.gather(*(node.groups.find_coordinators([GROUP]) for _ in range(5)))
        topic = node.image.topics["__consumer_offsets"]
        assert len(topic.partitions) == 7
        assert node.image.topic_configs("__consumer_offsets") == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }

    run(main, **{**SETTINGS, "offsets.topic.num.partitions": "7"})


def test_too_few_brokers_for_the_offsets_topic_are_an_error() -> None:
    async def main(node: FakeNode) -> None:
        with pytest.raises(KafkaError) as caught:
            await node.groups.find_coordinators([GROUP])
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await commit(node, 5) == ErrorCode.NOT_COORDINATOR

    run(main, **{**SETTINGS, "offsets.topic.replication.factor": "3"})


def test_responses_wait_for_the_commit_of_what_they_rest_on() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        partition.hold = True
        written = waiting(call(node, COMMIT, 9, commit_request(5)))
        read = asyncio.ensure_future(committed(node))
        await asyncio.sleep(1)
        assert not written.done()
        assert not read.done()
        partition.commit()
        assert (await written).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await read == (5, ErrorCode.NONE)

    with_groups(test)


def test_a_commit_timeout_refuses_the_request_but_the_step_may_commit_later() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        partition.hold = True
        began = node.elapsed()
        assert await commit(node, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert node.elapsed() - began == pytest.approx(2.0)
        assert await committed(node) == (-1, ErrorCode.NOT_COORDINATOR)
        partition.commit()
        assert await committed(node) == (5, ErrorCode.NONE)

    with_groups(test, **{"offsets.commit.timeout.ms": "2000"})


def test_a_lost_leadership_refuses_requests_that_wait_and_the_next_leader_reads_the_log() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        member = await join(node)
        assert await commit(node, 7, member) == ErrorCode.NONE
        partition.hold = True
        writing = waiting(call(node, COMMIT, 9, commit_request(8, member)))
        joining = waiting(call(node, JOIN, 3, join_request()))
        resign(partition)
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert (await writing).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert await commit(node, 9, member) == ErrorCode.NOT_COORDINATOR
        del partition.batches[-1]  # it was not replicated
        partition.hold = False
        await lead_again(node, partition)
        assert await committed(node) == (7, ErrorCode.NONE)
        assert await heartbeat(node, member) == ErrorCode.NONE
        assert await commit(node, 10, member) == ErrorCode.NONE

    with_groups(test)


def test_a_newer_leader_epoch_unloads_a_shard() -> None:
    """Another broker may have led the partition in between."""

    async def test(node: FakeNode, partition: FakePartition) -> None:
        assert await commit(node, 5) == ErrorCode.NONE
        partition.leader_epoch += 1
        assert await commit(node, 6) == ErrorCode.NOT_COORDINATOR
        partition.tell()
        await asyncio.gather(*node.tasks)
        assert await commit(node, 6) == ErrorCode.NONE

    with_groups(test)


def test_a_loaded_shard_serves_nothing_before_its_log_is_committed() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        member = await join(node)
        partition.hold = True
        waiting(call(node, COMMIT, 9, commit_request(8, member)))
        resign(partition)
        partition.is_leader = True
        partition.leader_epoch += 1
        partition.tell()
        await asyncio.sleep(10)
        assert await committed(node) == (-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert await commit(node, 9, member) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await heartbeat(node, member) == ErrorCode.NONE
        listed = await answer(node, LIST_GROUPS, 5, ListGroupsRequest())
        assert (listed.error_code, listed.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
        partition.commit()
        await asyncio.gather(*node.tasks)
        assert await committed(node) == (8, ErrorCode.NONE)

    with_groups(test)


def test_a_shard_whose_append_failed_is_reloaded() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        member = await join(node)
        assert await commit(node, 5, member) == ErrorCode.NONE
        joining = waiting(call(node, JOIN, 3, join_request(session_timeout_ms=20_000)))
        partition.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        assert await commit(node, 6, member) == ErrorCode.NOT_COORDINATOR
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        partition.refusal = None
        await asyncio.sleep(1)
        assert await committed(node) == (5, ErrorCode.NONE)
        assert await heartbeat(node, member) == ErrorCode.NONE

    with_groups(test)


def test_with_too_few_replicas_in_sync_heartbeats_still_extend_sessions() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        member = await join(node)
        partition.leader.enough_in_sync = False
        assert await commit(node, 6, member) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for _ in range(4):
            await asyncio.sleep(8)
            assert await heartbeat(node, member) == ErrorCode.NONE
        partition.leader.enough_in_sync = True
        assert await commit(node, 7, member) == ErrorCode.NONE

    with_groups(test)


def test_a_silent_member_is_removed_when_its_session_times_out() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        member = await join(node)
        await asyncio.sleep(9)
        assert await heartbeat(node, member) == ErrorCode.NONE
        await asyncio.sleep(9.9)
        assert await heartbeat(node, member) == ErrorCode.NONE
        await asyncio.sleep(10.1)
        assert await heartbeat(node, member) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(node, 5, member) == ErrorCode.UNKNOWN_MEMBER_ID

    with_groups(test)


def test_every_rebalance_logs_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        await leave(node, await join(node))

    with caplog.at_level("INFO", logger="penstock.node.shards.shard"):
        with_groups(test)
    assert [line.split(" after ")[0] for line in caplog.messages] == [
        f"group {GROUP}: generation 1 is stable with 1 members",
        f"group {GROUP}: generation 2 is empty",
    ]


def test_a_commit_too_large_for_one_batch_is_refused_and_writes_nothing() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        node.create("wide", 400)
        member = await join(node)
        assert await commit(node, 5, member) == ErrorCode.NONE
        joining = waiting(call(node, JOIN, 3, join_request(session_timeout_ms=20_000)))
        before = len(partition.batches)
        partitions = tuple(
            OffsetCommitRequest.Topic.Partition(
                partition_index=index, committed_offset=index, committed_metadata="m" * 4_000
            )
            for index in range(400)
        )
        topics = (OffsetCommitRequest.Topic(name="wide", partitions=partitions),)
        response = call(node, COMMIT, 9, commit_request(0, member, topics=topics))
        assert {partition.error_code for partition in response.topics[0].partitions} == {
            ErrorCode.UNKNOWN_SERVER_ERROR
        }
        assert len(partition.batches) == before
        assert await committed(node, "wide", 399) == (-1, ErrorCode.NONE)
        assert not joining.done(), "other members are not affected"
        assert await heartbeat(node, member) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await commit(node, 6, member) == ErrorCode.NONE

    with_groups(test)


def test_a_group_with_many_offsets_is_deleted_in_several_batches() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        count = 2 * MAX_REMOVALS_PER_STEP + 5
        node.create("wide", count)
        partitions = tuple(
            OffsetCommitRequest.Topic.Partition(partition_index=index, committed_offset=index)
            for index in range(count)
        )
        topics = (OffsetCommitRequest.Topic(name="wide", partitions=partitions),)
        call(node, COMMIT, 9, commit_request(0, topics=topics))
        before = len(partition.batches)
        deleting = waiting(call(node, DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=(GROUP,))))
        assert await commit(node, 9) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await deleting).results[0].error_code == ErrorCode.NONE
        batches = [data for _base, _end, data in partition.batches[before:]]
        assert len(batches) == 3
        assert max(read_header(batch).record_count for batch in batches) <= MAX_REMOVALS_PER_STEP
        assert await committed(node, "wide", 0) == (-1, ErrorCode.NONE)
        assert (await answer(node, LIST_GROUPS, 5, ListGroupsRequest())).groups == ()
        assert await commit(node, 9) == ErrorCode.NONE

    with_groups(test)


@pytest.mark.parametrize(("commit_transaction", "expected"), [(None, -1), (True, 77), (False, -1)])
def test_the_last_record_of_a_key_counts_and_those_of_transactions_with_their_marker(
    commit_transaction: bool | None, expected: int
) -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        for offset in range(300):
            await commit(node, offset, partition=offset % 2)
        stray = read_header(partition.batches[-1][2])
        assert stray.record_count == 1
        await commit(node, 77, partition=2)
        _base, _end, last = partition.batches.pop()
        partition.batches.append((_base, _end, _as_transactional(last)))
        if commit_transaction is not None:
            partition.append(
                end_transaction_marker(
                    commit=commit_transaction,
                    producer_id=7,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=0,
                )
            )
        partition.high_watermark = partition.log_end_offset
        resign(partition)
        await lead_again(node, partition)
        assert [await committed(node, partition=index) for index in range(3)] == [
            (298, 0),
            (299, 0),
            (expected, 0),
        ]

    with_groups(test)


def _as_transactional(batch: bytes) -> bytes:
    from penstock.records.record import rows_of

    header = read_header(batch)
    rows = [
        (key, value, headers, timestamp)
        for _offset, timestamp, key, value, headers in rows_of(batch, header)
    ]
    return build_batch(
        rows,
        base_offset=header.base_offset,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_loading_yields_to_the_event_loop() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        node.create("wide", 1_000)
        for index in range(1_000):
            await commit(node, index, topic="wide", partition=index)
        turns: list[list[Record]] = [[]]

        def replay(record: Record, _batch: Batch) -> None:
            if not turns[-1]:
                asyncio.get_running_loop().call_soon(turns.append, [])
            turns[-1].append(record)

        assert (
            await ShardLoader(node.world).load(
                cast(Partition, partition), 900, replay, lambda: True
            )
            == 900
        )
        keys = {record.key for turn in turns for record in turn}
        assert (len(keys), sum(map(len, turns))) == (900, 900)
        assert max(map(len, turns)) <= SHARD_LOAD_RECORDS

    with_groups(test)


def test_a_damaged_record_prevents_loading_of_its_shard_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        assert await commit(node, 5) == ErrorCode.NONE
        partition.append(build_batch([(b"\x00\x02\x7f", b"\x00\x03", (), 0)]))
        resign(partition)
        await lead_again(node, partition)
        assert await committed(node) == (-1, ErrorCode.NOT_COORDINATOR)

    with_groups(test)
    assert "the shard cannot be loaded" in caplog.text


def test_deleting_a_topic_deletes_its_offsets() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        assert await commit(node, 5) == ErrorCode.NONE
        node.apply(
            lambda image: delete_topics(
                image, DeleteTopicsRequest(topic_names=("orders",)), node.context
            )
        )
        assert await commit(node, 6) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.create("orders", 3)
        assert await committed(node) == (-1, ErrorCode.NONE)

    with_groups(test)


def test_a_stopping_broker_refuses_requests_that_wait() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        await join(node)
        joining = waiting(call(node, JOIN, 3, join_request()))
        node.groups.close()
        assert (await joining).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await commit(node, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_groups(test)


def test_listing_groups_yields_to_the_event_loop_after_each_shard() -> None:
    async def main(node: FakeNode) -> None:
        node.create("orders")
        await offsets_partition(node)
        for number in range(40):
            await commit(node, 5, group_id=f"group-{number}")
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        listed = await answer(node, LIST_GROUPS, 5, ListGroupsRequest())
        counting.cancel()
        assert {group.group_id for group in listed.groups} == {f"group-{n}" for n in range(40)}
        assert turns >= 7

    run(main, **{**SETTINGS, "offsets.topic.num.partitions": "7"})
