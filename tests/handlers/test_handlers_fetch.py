"""Fetch without sessions: bounds on bytes, waiting, isolation, fencing."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition
from penstock.limits import FETCH_PARTITIONS_A_TURN
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.handlers.fake_node import FakeNode, answer, call, records, run

Topic = FetchRequest.Topic
Answer = FetchResponse.Response.Partition
BATCH = records()
SIZE = len(BATCH)


def part(index: int = 0, offset: int = 0, limit: int = 10_000, **fields: Any) -> Topic.Partition:
    return Topic.Partition(
        partition=index, fetch_offset=offset, partition_max_bytes=limit, **fields
    )


def request(
    *partitions: Topic.Partition,
    topic: str = "t",
    wait_ms: int = 0,
    min_bytes: int = 1,
    **fields: Any,
) -> FetchRequest:
    topics = (Topic(topic=topic, partitions=partitions),)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=topics, **fields)


async def fetch(node: FakeNode, asked: FetchRequest, version: int = 12) -> list[Answer]:
    response = await answer(node, 1, version, asked)
    assert response.error_code == ErrorCode.NONE
    return [partition for topic in response.responses for partition in topic.partitions]


def sizes(answers: list[Answer]) -> list[int]:
    return [len(one.records or b"") for one in answers]


def test_records_come_as_they_are_with_the_watermarks() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(3):
            partition.append(BATCH)
        partition.log_start_offset = 1
        (one,) = await fetch(node, request(part(offset=1)))
        assert one.records == BATCH * 2
        assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (3, 3, 1)
        assert one.aborted_transactions is None

    run(main)


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation", [0, 1])
def test_every_version_carries_data_and_errors(version: int, isolation: int) -> None:
    async def main(node: FakeNode) -> None:
        sound, fenced, *_rest = node.create("t", 3)
        sound.append(BATCH)
        sound.aborted = [(5, 0)]
        fenced.leader_epoch = 9
        node.elsewhere.add(TopicPartition("t", 2))
        partitions = (part(0), part(1, current_leader_epoch=3), part(2))
        topics = (Topic(topic="t", topic_id=node.image.topics["t"].id, partitions=partitions),)
        answers = await fetch(node, FetchRequest(topics=topics, isolation_level=isolation), version)
        codes = [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert [one.error_code for one in answers] == codes
        assert [one.current_leader.leader_id for one in answers] == (
            [-1, 1, 1] if version >= 16 else [-1, -1, -1]
        )

    run(main)


def test_each_partition_and_all_together_are_bounded() -> None:
    async def main(node: FakeNode) -> None:
        for partition in node.create("t", 3):
            for _ in range(5):
                partition.append(BATCH)
        asked = [part(index, limit=2 * SIZE) for index in range(3)]
        assert sizes(await fetch(node, request(*asked))) == [2 * SIZE] * 3
        assert sizes(await fetch(node, request(*asked, max_bytes=3 * SIZE))) == [2 * SIZE, SIZE, 0]

    run(main)


def test_only_the_first_partition_with_data_may_exceed_the_bounds() -> None:
    async def main(node: FakeNode) -> None:
        _empty, second, third = node.create("t", 3)
        second.append(BATCH)
        third.append(BATCH)
        answers = await fetch(
            node, request(*(part(index, limit=1) for index in range(3)), max_bytes=1)
        )
        assert sizes(answers) == [0, SIZE, 0]
        assert [one.high_watermark for one in answers] == [0, 1, 1]

    run(main)


def test_what_is_cold_is_fetched_from_the_disk_first() -> None:
    async def main(node: FakeNode) -> None:
        cold, warm = node.create("t", 2)
        for partition in (cold, warm):
            partition.append(BATCH)
        cold.is_cold = True
        answers = await fetch(node, request(part(0), part(1)))
        assert {one.partition_index: len(one.records or b"") for one in answers} == {
            0: SIZE,
            1: SIZE,
        }
        assert not cold.is_cold
        assert (cold.reads, warm.reads) == (1, 1)

    run(main)


def test_a_fetch_waits_until_its_time_is_up() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        assert sizes(await fetch(node, request(part(), wait_ms=500))) == [0]
        assert node.elapsed() == pytest.approx(0.5)
        assert partition.watchers == {}
        assert partition.reads == 1, "nothing is polled"

    run(main)


def test_a_fetch_is_woken_when_enough_bytes_have_come() -> None:
    async def main(node: FakeNode) -> None:
        first, second = node.create("t", 2)
        asked = request(part(0), part(1), wait_ms=10_000, min_bytes=2 * SIZE)
        waiting = asyncio.ensure_future(answer(node, 1, 12, asked))
        await asyncio.sleep(1)
        first.append(BATCH)
        await asyncio.sleep(1)
        assert not waiting.done()
        reads = first.reads
        second.append(BATCH)
        response = await waiting
        assert [one.records for one in response.responses[0].partitions] == [BATCH, BATCH]
        assert node.elapsed() == pytest.approx(2, abs=0.1)
        assert first.reads == reads, "only what changed is read again"
        assert (first.watchers, second.watchers) == ({}, {})

    run(main)


def test_what_changes_before_the_wait_begins_is_not_missed() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        waiting = call(node, 1, 12, request(part(), wait_ms=10_000))
        partition.append(BATCH)
        assert sizes(list((await waiting).responses[0].partitions)) == [SIZE]
        assert node.elapsed() < 1

    run(main)


def test_many_partitions_are_read_in_turns_and_all_are_answered() -> None:
    async def main(node: FakeNode) -> None:
        count = 3 * FETCH_PARTITIONS_A_TURN + 1
        partitions = node.create("t", count)
        partitions[0].append(BATCH)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        others = asyncio.create_task(count_turns())
        answers = await fetch(node, request(*(part(index) for index in range(count)), wait_ms=1000))
        others.cancel()
        assert sizes(answers) == [SIZE] + [0] * (count - 1)
        assert turns >= 2

    run(main)


def test_a_partition_that_keeps_changing_does_not_hold_up_a_fetch_in_turns() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 2 * FETCH_PARTITIONS_A_TURN)

        async def keep_appending() -> None:
            while True:
                await asyncio.sleep(0)
                partitions[0].append(BATCH)

        busy = asyncio.create_task(keep_appending())
        asked = (part(index) for index in range(len(partitions)))
        answers = await asyncio.wait_for(
            fetch(node, request(*asked, wait_ms=1000, max_bytes=SIZE)), 2
        )
        busy.cancel()
        assert len(answers) == len(partitions)

    run(main)


def test_a_fetch_that_is_cancelled_leaves_no_watcher() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        waiting = asyncio.ensure_future(answer(node, 1, 12, request(part(), wait_ms=10_000)))
        await asyncio.sleep(0.1)
        assert len(partition.watchers) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert partition.watchers == {}

    run(main)


def test_a_topic_that_is_deleted_ends_the_wait_of_the_last_partition() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        waiting = asyncio.ensure_future(answer(node, 1, 12, request(part(), wait_ms=10_000)))
        await asyncio.sleep(0.1)
        await answer(node, 20, 5, DeleteTopicsRequest(topic_names=("t",)))
        (one,) = (await waiting).responses[0].partitions
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert node.elapsed() < 1

    run(main)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (part(offset=9), ErrorCode.OFFSET_OUT_OF_RANGE),
        (part(offset=-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (part(current_leader_epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (part(current_leader_epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (part(1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (part(last_fetched_epoch=9), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_an_error_is_answered_at_once(asked: Topic.Partition, code: ErrorCode) -> None:
    async def main(node: FakeNode) -> None:
        node.create("t", 3)
        node.elsewhere.add(TopicPartition("t", 1))
        failed, other = await fetch(node, request(asked, part(2), wait_ms=10_000))
        assert (failed.error_code, failed.high_watermark, failed.records) == (code, -1, b"")
        assert other.error_code == ErrorCode.NONE
        assert node.elapsed() < 1

    run(main)


def test_an_unknown_partition_waits_with_the_others_but_not_alone() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        answers = await fetch(node, request(part(7), wait_ms=10_000))
        assert [one.error_code for one in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert node.elapsed() < 1
        await fetch(node, request(part(0), part(7), wait_ms=10_000))
        assert node.elapsed() == pytest.approx(10, abs=0.1)

    run(main)


def test_isolation_and_aborted_transactions() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(4):
            partition.append(BATCH)
        partition.first_unstable = 2
        partition.aborted = [(77, 0)]
        (uncommitted,) = await fetch(node, request(part(), isolation_level=0))
        (committed,) = await fetch(node, request(part(), isolation_level=1))
        assert (sizes([uncommitted]), sizes([committed])) == ([4 * SIZE], [2 * SIZE])
        assert uncommitted.aborted_transactions is None
        assert committed.aborted_transactions == (
            Answer.AbortedTransaction(producer_id=77, first_offset=0),
        )
        assert (committed.high_watermark, committed.last_stable_offset) == (4, 2)

    run(main)


@pytest.mark.parametrize(
    "fields",
    [
        {"replica_id": 2},
        {"replica_state": FetchRequest.ReplicaState(replica_id=2, replica_epoch=1)},
    ],
)
def test_a_client_that_poses_as_a_replica_is_refused(fields: dict[str, Any]) -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.append(BATCH)
        partition.hold = True
        partition.append(BATCH)
        (one,) = await fetch(node, request(part(), **fields), 12)
        assert (one.error_code, sizes([one])) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [0])

    run(main)


def test_divergence_is_told() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(5):
            partition.append(BATCH)
        partition.epochs = {2: (1, 3), 3: (3, 5)}
        (one,) = await fetch(node, request(part(offset=4, last_fetched_epoch=2)))
        assert (one.diverging_epoch.epoch, one.diverging_epoch.end_offset, one.error_code) == (
            1,
            3,
            ErrorCode.NONE,
        )
        (one,) = await fetch(node, request(part(offset=4, last_fetched_epoch=3)))
        assert sizes([one]) == [SIZE]

    run(main)


def test_version_13_names_topics_by_id() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.append(BATCH)
        topic_id = node.image.topics["t"].id
        known = FetchRequest(topics=(Topic(topic_id=topic_id, partitions=(part(),)),))
        response = await answer(node, 1, 13, known)
        assert response.responses[0].topic_id == topic_id
        assert response.responses[0].partitions[0].records == BATCH
        (one,) = await fetch(
            node, FetchRequest(topics=(Topic(topic_id=NO_UUID, partitions=(part(),)),)), 13
        )
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(main)


def test_where_another_leads_the_response_says_who_and_where() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        node.elsewhere.add(TopicPartition("t", 0))
        asked = FetchRequest(
            topics=(Topic(topic_id=node.image.topics["t"].id, partitions=(part(),)),)
        )
        response = await answer(node, 1, 16, asked)
        assert response.responses[0].partitions[0].current_leader.leader_id == 1
        assert [one.host for one in response.node_endpoints] == ["10.0.0.1"]

    run(main)


def test_an_error_while_waiting_is_answered() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")

        def broken(*_args: object, **_options: object) -> Any:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

        waiting = asyncio.ensure_future(answer(node, 1, 12, request(part(), wait_ms=10_000)))
        await asyncio.sleep(0.1)
        partition.read = broken  # type: ignore[method-assign]  # the disk fails from here on
        partition.tell()
        assert (await waiting).responses[0].partitions[
            0
        ].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(main)


def test_wakes_do_not_multiply_the_partitions_that_a_fetch_reads_per_turn() -> None:
    """However often the fetch is woken while it reads its partitions in turns, one iteration of the
    event loop reads a bounded number of them."""

    async def main(node: FakeNode) -> None:
        turns = 20
        partitions = node.create("t", turns * FETCH_PARTITIONS_A_TURN)
        asked = (part(index) for index in range(len(partitions)))
        waiting = asyncio.ensure_future(fetch(node, request(*asked, wait_ms=1000, min_bytes=10**6)))
        reads = [0]
        for _ in range(turns):
            await asyncio.sleep(0)
            partitions[0].append(BATCH)
            reads.append(sum(partition.reads for partition in partitions))
        assert max(b - a for a, b in pairwise(reads)) <= 2 * FETCH_PARTITIONS_A_TURN
        assert len(await waiting) == len(partitions)

    run(main)
