"""Fetch without sessions: bounds on bytes, waiting, isolation, fencing."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import fetch as fetch_handler
from penstock.ids import NO_UUID, TopicPartition
from penstock.limits import FETCH_PARTITIONS_A_TURN
from penstock.node.fetch import delayed, reader
from penstock.protocol.codec import encode
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.handlers.fake_node import FakeNode, answer, call, records, run

Topic = FetchRequest.Topic
PartitionResponse = FetchResponse.Response.Partition
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


async def fetch(
    node: FakeNode, requested: FetchRequest, version: int = 12
) -> list[PartitionResponse]:
    response = await answer(node, 1, version, requested)
    assert response.error_code == ErrorCode.NONE
    return [partition for topic in response.responses for partition in topic.partitions]


def sizes(responses: list[PartitionResponse]) -> list[int]:
    return [len(result.records or b"") for result in responses]


def test_records_are_returned_unchanged_with_the_offsets() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(3):
            partition.append(BATCH)
        partition.log_start_offset = 1
        (result,) = await fetch(node, request(part(offset=1)))
        assert result.records == BATCH * 2
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
            3,
            3,
            1,
        )
        assert result.aborted_transactions is None

    run(main)


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation", [0, 1])
def test_every_version_has_records_and_errors(version: int, isolation: int) -> None:
    async def main(node: FakeNode) -> None:
        sound, fenced, *_rest = node.create("t", 3)
        sound.append(BATCH)
        sound.aborted = [(5, 0)]
        fenced.leader_epoch = 9
        node.elsewhere.add(TopicPartition("t", 2))
        partitions = (part(0), part(1, current_leader_epoch=3), part(2))
        topics = (Topic(topic="t", topic_id=node.image.topics["t"].id, partitions=partitions),)
        responses = await fetch(
            node, FetchRequest(topics=topics, isolation_level=isolation), version
        )
        codes = [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert [result.error_code for result in responses] == codes
        assert [result.current_leader.leader_id for result in responses] == (
            [-1, 1, 1] if version >= 16 else [-1, -1, -1]
        )

    run(main)


def test_bytes_are_bounded_per_partition_and_per_response() -> None:
    async def main(node: FakeNode) -> None:
        for partition in node.create("t", 3):
            for _ in range(5):
                partition.append(BATCH)
        requested = [part(index, limit=2 * SIZE) for index in range(3)]
        assert sizes(await fetch(node, request(*requested))) == [2 * SIZE] * 3
        assert sizes(await fetch(node, request(*requested, max_bytes=3 * SIZE))) == [
            2 * SIZE,
            SIZE,
            0,
        ]

    run(main)


def test_only_the_first_partition_with_data_may_exceed_the_bounds() -> None:
    async def main(node: FakeNode) -> None:
        _empty, second, third = node.create("t", 3)
        second.append(BATCH)
        third.append(BATCH)
        responses = await fetch(
            node, request(*(part(index, limit=1) for index in range(3)), max_bytes=1)
        )
        assert sizes(responses) == [0, SIZE, 0]
        assert [result.high_watermark for result in responses] == [0, 1, 1]

    run(main)


def test_cold_records_are_read_from_the_disk_first() -> None:
    async def main(node: FakeNode) -> None:
        cold, warm = node.create("t", 2)
        for partition in (cold, warm):
            partition.append(BATCH)
        cold.is_cold = True
        responses = await fetch(node, request(part(0), part(1)))
        assert {result.partition_index: len(result.records or b"") for result in responses} == {
            0: SIZE,
            1: SIZE,
        }
        assert not cold.is_cold
        assert (cold.reads, warm.reads) == (1, 1)

    run(main)


def test_a_fetch_is_answered_if_the_thread_that_reads_cold_records_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise IndexError("unexpected")

    async def main(node: FakeNode) -> None:
        cold, other = node.create("t", 2)
        for partition in (cold, other):
            partition.append(BATCH)
            partition.is_cold = True
        monkeypatch.setattr(cold, "_warm", fail)
        responses = await fetch(node, request(part(0), part(1)))
        assert sorted(sizes(responses)) == [SIZE, SIZE]
        assert not other.is_cold

    run(main)


def test_a_fetch_waits_for_max_wait_ms() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        assert sizes(await fetch(node, request(part(), wait_ms=500))) == [0]
        assert node.elapsed() == pytest.approx(0.5)
        assert partition.watchers == {}
        assert partition.reads == 1, "there is no polling"

    run(main)


def test_a_fetch_is_completed_by_min_bytes() -> None:
    async def main(node: FakeNode) -> None:
        first, second = node.create("t", 2)
        requested = request(part(0), part(1), wait_ms=10_000, min_bytes=2 * SIZE)
        waiting = asyncio.ensure_future(answer(node, 1, 12, requested))
        await asyncio.sleep(1)
        first.append(BATCH)
        await asyncio.sleep(1)
        assert not waiting.done()
        reads = first.reads
        second.append(BATCH)
        response = await waiting
        assert [result.records for result in response.responses[0].partitions] == [BATCH, BATCH]
        assert node.elapsed() == pytest.approx(2, abs=0.1)
        assert first.reads == reads, "only the changed partition is read again"
        assert (first.watchers, second.watchers) == ({}, {})

    run(main)


def test_an_append_right_after_the_request_wakes_the_fetch() -> None:
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
        responses = await fetch(
            node, request(*(part(index) for index in range(count)), wait_ms=1000)
        )
        others.cancel()
        assert sizes(responses) == [SIZE] + [0] * (count - 1)
        assert turns >= 2

    run(main)


def test_a_partition_that_keeps_changing_does_not_delay_a_fetch_of_many() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 2 * FETCH_PARTITIONS_A_TURN)

        async def keep_appending() -> None:
            while True:
                await asyncio.sleep(0)
                partitions[0].append(BATCH)

        busy = asyncio.create_task(keep_appending())
        requested = (part(index) for index in range(len(partitions)))
        responses = await asyncio.wait_for(
            fetch(node, request(*requested, wait_ms=1000, max_bytes=SIZE)), 2
        )
        busy.cancel()
        assert len(responses) == len(partitions)

    run(main)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 16, 18])
def test_a_large_response_is_encoded_in_turns_and_has_the_same_bytes(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response of 20,000 partitions held the event loop for half a second."""

    def encoded(at_once: int) -> tuple[bytes, int]:
        for module in (delayed, reader, fetch_handler):
            monkeypatch.setattr(module, "ANSWERED_PARTITIONS_A_TURN", at_once)
        return run(main)

    async def main(node: FakeNode) -> tuple[bytes, int]:
        topics = []
        for name in ("t", "u", "v"):
            partitions = node.create(name, 7)
            partitions[3].append(BATCH)
            partitions[5].append(BATCH)
            topics.append(
                Topic(
                    topic=name if version < 13 else "",
                    topic_id=NO_UUID if version < 13 else node.metadata.image.topics[name].id,
                    partitions=tuple(part(index, limit=SIZE) for index in range(8)),
                )
            )
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        monkeypatch.setattr(delayed, "FETCH_PARTITIONS_A_TURN", 20)
        monkeypatch.setattr(reader, "FETCH_PARTITIONS_A_TURN", 20)
        others = asyncio.create_task(count_turns())
        response = await call(
            node, 1, version, FetchRequest(max_wait_ms=500, min_bytes=1, topics=tuple(topics))
        )
        others.cancel()
        return b"".join(cast("list[bytes]", encode(response, version))), turns

    plain, few_turns = encoded(1_000)
    sliced, turns = encoded(2)
    assert sliced == plain
    assert turns >= few_turns + 12


def test_a_cancelled_fetch_leaves_no_watcher() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        waiting = asyncio.ensure_future(answer(node, 1, 12, request(part(), wait_ms=10_000)))
        await asyncio.sleep(0.1)
        assert len(partition.watchers) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert partition.watchers == {}

    run(main)


def test_deleting_the_only_topic_of_a_fetch_completes_it() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        waiting = asyncio.ensure_future(answer(node, 1, 12, request(part(), wait_ms=10_000)))
        await asyncio.sleep(0.1)
        await answer(node, 20, 5, DeleteTopicsRequest(topic_names=("t",)))
        (result,) = (await waiting).responses[0].partitions
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert node.elapsed() < 1

    run(main)


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (part(offset=9), ErrorCode.OFFSET_OUT_OF_RANGE),
        (part(offset=-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (part(current_leader_epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (part(current_leader_epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (part(1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (part(last_fetched_epoch=9), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_an_error_is_returned_immediately(requested: Topic.Partition, code: ErrorCode) -> None:
    async def main(node: FakeNode) -> None:
        node.create("t", 3)
        node.elsewhere.add(TopicPartition("t", 1))
        failed, other = await fetch(node, request(requested, part(2), wait_ms=10_000))
        assert (failed.error_code, failed.high_watermark, failed.records) == (code, -1, b"")
        assert other.error_code == ErrorCode.NONE
        assert node.elapsed() < 1

    run(main)


def test_an_unknown_partition_waits_with_others_but_not_alone() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        responses = await fetch(node, request(part(7), wait_ms=10_000))
        assert [result.error_code for result in responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
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
            PartitionResponse.AbortedTransaction(producer_id=77, first_offset=0),
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
def test_a_client_with_a_replica_id_is_refused(fields: dict[str, Any]) -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.append(BATCH)
        partition.hold = True
        partition.append(BATCH)
        (result,) = await fetch(node, request(part(), **fields), 12)
        assert (result.error_code, sizes([result])) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [0])

    run(main)


def test_a_diverging_epoch_is_returned() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(5):
            partition.append(BATCH)
        partition.epochs = {2: (1, 3), 3: (3, 5)}
        (result,) = await fetch(node, request(part(offset=4, last_fetched_epoch=2)))
        assert (
            result.diverging_epoch.epoch,
            result.diverging_epoch.end_offset,
            result.error_code,
        ) == (
            1,
            3,
            ErrorCode.NONE,
        )
        (result,) = await fetch(node, request(part(offset=4, last_fetched_epoch=3)))
        assert sizes([result]) == [SIZE]

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
        (result,) = await fetch(
            node, FetchRequest(topics=(Topic(topic_id=NO_UUID, partitions=(part(),)),)), 13
        )
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(main)


def test_the_response_names_the_current_leader_and_its_endpoint() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        node.elsewhere.add(TopicPartition("t", 0))
        requested = FetchRequest(
            topics=(Topic(topic_id=node.image.topics["t"].id, partitions=(part(),)),)
        )
        response = await answer(node, 1, 16, requested)
        assert response.responses[0].partitions[0].current_leader.leader_id == 1
        assert [endpoint.host for endpoint in response.node_endpoints] == ["10.0.0.1"]

    run(main)


def test_an_error_while_waiting_is_returned() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")

        def broken(*_args: object, **_options: object) -> Any:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

        waiting = asyncio.ensure_future(answer(node, 1, 12, request(part(), wait_ms=10_000)))
        await asyncio.sleep(0.1)
        partition.read = broken  # type: ignore[method-assign]  # the disk fails
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
        requested = (part(index) for index in range(len(partitions)))
        waiting = asyncio.ensure_future(
            fetch(node, request(*requested, wait_ms=1000, min_bytes=10**6))
        )
        reads = [0]
        for _ in range(turns):
            await asyncio.sleep(0)
            partitions[0].append(BATCH)
            reads.append(sum(partition.reads for partition in partitions))
        assert max(b - a for a, b in pairwise(reads)) <= 2 * FETCH_PARTITIONS_A_TURN
        assert len(await waiting) == len(partitions)

    run(main)
