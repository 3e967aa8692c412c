"""The shell of consumer groups: when an answer leaves, what becomes of a shard when its partition
moves, and how it is loaded.

The coordinator is the real one; its partition is one that the test controls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from penstock.controller.topics.delete import delete_topics
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import SHARD_LOAD_RECORDS
from penstock.node.partition.partition import Partition
from penstock.node.shards.shard_set import positive_hash
from penstock.node.shards.loading import ShardLoader
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.records.batch import read_header
from penstock.records.build import build_batch
from tests.handlers.fake_node import FakeNode, FakePartition, call, run
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
def test_the_hash_is_javas_without_its_sign(text: str, expected: int) -> None:
    assert positive_hash(text) == expected


def test_the_topic_is_made_as_kafka_makes_it() -> None:
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


def test_too_few_brokers_for_the_topic_are_told_and_no_harm_is_done() -> None:
    async def main(node: FakeNode) -> None:
        with pytest.raises(KafkaError) as caught:
            await node.groups.find_coordinators([GROUP])
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await commit(node, 5) == ErrorCode.NOT_COORDINATOR

    run(main, **{**SETTINGS, "offsets.topic.replication.factor": "3"})


def test_a_commit_is_answered_when_it_is_committed_and_so_is_what_rests_on_it() -> None:
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


def test_what_is_not_committed_in_time_is_refused_and_may_have_happened() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        partition.hold = True
        began = node.elapsed()
        assert await commit(node, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert node.elapsed() - began == pytest.approx(2.0)
        assert await committed(node) == (-1, ErrorCode.NOT_COORDINATOR)
        partition.commit()
        assert await committed(node) == (5, ErrorCode.NONE)

    with_groups(test, **{"offsets.commit.timeout.ms": "2000"})


def test_who_waits_is_told_when_leadership_goes_and_the_next_leader_reads_it_all_from_the_log() -> (
    None
):
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
        del partition.batches[-1]  # no other replica had it
        partition.hold = False
        await lead_again(node, partition)
        assert await committed(node) == (7, ErrorCode.NONE)
        assert await heartbeat(node, member) == ErrorCode.NONE
        assert await commit(node, 10, member) == ErrorCode.NONE

    with_groups(test)


def test_a_newer_epoch_alone_ends_a_shard() -> None:
    """The partition may have been another's in between."""

    async def test(node: FakeNode, partition: FakePartition) -> None:
        assert await commit(node, 5) == ErrorCode.NONE
        partition.leader_epoch += 1
        assert await commit(node, 6) == ErrorCode.NOT_COORDINATOR
        partition.tell()
        await asyncio.gather(*node.tasks)
        assert await commit(node, 6) == ErrorCode.NONE

    with_groups(test)


def test_nothing_is_answered_from_what_is_loaded_before_it_is_committed() -> None:
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
        (listed,) = [call(node, 16, 5, ListGroupsRequest())]
        assert (listed.error_code, listed.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
        partition.commit()
        await asyncio.gather(*node.tasks)
        assert await committed(node) == (8, ErrorCode.NONE)

    with_groups(test)


def test_a_failed_append_costs_the_shard_which_is_loaded_anew() -> None:
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


def test_without_enough_in_sync_nothing_is_decided_but_sessions_go_on() -> None:
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


def test_a_member_that_is_silent_is_removed_in_its_time() -> None:
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


def test_every_rebalance_leaves_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        await leave(node, await join(node))

    with caplog.at_level("INFO", logger="penstock.node.shards.shard"):
        with_groups(test)
    assert [line.split(" after ")[0] for line in caplog.messages] == [
        f"group {GROUP}: generation 1 is stable with 1 members",
        f"group {GROUP}: generation 2 is empty",
    ]


def test_a_step_that_is_too_large_for_one_batch_is_divided() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        node.create("wide", 400)
        before = len(partition.batches)
        asked = tuple(
            OffsetCommitRequest.Topic.Partition(
                partition_index=index, committed_offset=index, committed_metadata="m" * 4_000
            )
            for index in range(400)
        )
        request = commit_request(
            0, topics=(OffsetCommitRequest.Topic(name="wide", partitions=asked),)
        )
        assert {one.error_code for one in call(node, COMMIT, 9, request).topics[0].partitions} == {
            ErrorCode.NONE
        }
        sizes = [len(data) for _base, _end, data in partition.batches[before:]]
        assert len(sizes) == 2
        assert max(sizes) <= partition.config.max_message_bytes
        resign(partition)
        await lead_again(node, partition)
        assert await committed(node, "wide", 399) == (399, ErrorCode.NONE)

    with_groups(test)


def test_the_last_record_of_a_key_counts_and_what_is_of_transactions_does_not() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        for offset in range(300):
            await commit(node, offset, partition=offset % 2)
        stray = read_header(partition.batches[-1][2])
        assert stray.record_count == 1
        await commit(node, 77, partition=2)
        _base, _end, last = partition.batches.pop()
        partition.batches.append((_base, _end, _as_transactional(last)))
        partition.high_watermark = partition.log_end_offset
        resign(partition)
        await lead_again(node, partition)
        assert [await committed(node, partition=index) for index in range(3)] == [
            (298, 0),
            (299, 0),
            (-1, 0),
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


def test_others_have_their_turns_while_a_shard_is_loaded() -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        node.create("wide", 1_000)
        for index in range(1_000):
            await commit(node, index, topic="wide", partition=index)
        turns: list[list[int]] = [[]]

        def replay(offset: int, _key: bytes, _value: bytes | None, _timestamp: int) -> None:
            if not turns[-1]:
                asyncio.get_running_loop().call_soon(turns.append, [])
            turns[-1].append(offset)

        assert (
            await ShardLoader(node.world).load(cast(Partition, partition), 900, replay, lambda: True)
            == 900
        )
        assert [offset for turn in turns for offset in turn] == list(range(900))
        assert max(map(len, turns)) <= SHARD_LOAD_RECORDS

    with_groups(test)


def test_what_is_wrong_in_the_log_is_told_and_costs_no_more_than_its_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(node: FakeNode, partition: FakePartition) -> None:
        assert await commit(node, 5) == ErrorCode.NONE
        partition.append(build_batch([(b"\x00\x02\x7f", b"\x00\x03", (), 0)]))
        resign(partition)
        await lead_again(node, partition)
        assert await committed(node) == (-1, ErrorCode.NOT_COORDINATOR)

    with_groups(test)
    assert "its groups cannot be loaded" in caplog.text


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
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


def test_a_node_that_stops_answers_who_waits() -> None:
    async def test(node: FakeNode, _partition: FakePartition) -> None:
        await join(node)
        joining = waiting(call(node, JOIN, 3, join_request()))
        node.groups.close()
        assert (await joining).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await commit(node, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_groups(test)
