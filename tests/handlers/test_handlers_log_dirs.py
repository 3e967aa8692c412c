"""DescribeLogDirs and AlterReplicaLogDirs; DeleteTopics if deletion is disabled; the leader epoch
of the earliest offset."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.store import LogStore
from penstock.node.partition.replica_moves import ReplicaMoves
from penstock.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.protocol.messages.list_offsets import ListOffsetsRequest
from penstock.records.build import build_batch
from tests.handlers.fake_node import FakeNode, answer, run

Dir = AlterReplicaLogDirsRequest.Dir


class LoggedPartition:
    """A partition with a real log and no role."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        names = {"log_end_offset": "end_offset", "high_watermark": "end_offset"}
        return getattr(self._log, names.get(name, name))


async def with_logs(node: FakeNode) -> LogStore:
    """Give the node real logs: partitions 0 and 1 of `t` in /a, but no partition 2."""
    for path in ("/a", "/b"):
        node.world.disk.make_dirs(path)
    store = LogStore(
        node.world,
        [LogDirectory(path, UUID(int=number)) for number, path in enumerate(("/a", "/b"), 200)],
    )
    await store.open(lambda _partition: LogConfig())
    node.create("t", 3)
    for index in (0, 1):
        name = TopicPartition("t", index)
        log = store.create(name, UUID(int=1), LogConfig(), store.directories[0])
        log.append_as_leader(build_batch([(None, bytes(1000), (), 1000)] * 1000), 2)
        node.partitions[name] = cast(Any, LoggedPartition(log))
    del node.partitions[TopicPartition("t", 2)]
    cast(Any, node.replicas).store = store
    node.parts.replica_moves = ReplicaMoves(store, node.metadata, node.spawn)
    return store


async def alter(
    node: FakeNode, *moves: tuple[str, str, tuple[int, ...]], version: int = 2
) -> dict[tuple[str, int], int]:
    dirs = tuple(
        Dir(path=path, topics=(Dir.Topic(name=topic, partitions=indexes),))
        for path, topic, indexes in moves
    )
    response = await answer(node, 34, version, AlterReplicaLogDirsRequest(dirs=dirs))
    return {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in response.results
        for partition in topic.partitions
    }


async def described(node: FakeNode) -> dict[str, list[tuple[int, int, bool]]]:
    """Return index, lag and is_future_key of the replicas in each directory."""
    response = await answer(node, 35, 5, DescribeLogDirsRequest(topics=None))
    return {
        directory.log_dir: [
            (replica.partition_index, replica.offset_lag, replica.is_future_key)
            for topic in directory.topics
            for replica in topic.partitions
        ]
        for directory in response.results
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_moving_replica_is_described_in_both_directories(version: int) -> None:
    async def main(node: FakeNode) -> None:
        store = await with_logs(node)
        assert await alter(node, ("/b", "t", (0,)), version=version) == {("t", 0): ErrorCode.NONE}
        assert await described(node) == {
            "/a": [(0, 0, False), (1, 0, False)],
            "/b": [(0, 1000, True)],
        }
        assert await alter(node, ("/b", "t", (0,))) == {("t", 0): ErrorCode.NONE}, (
            "the replica moves already"
        )
        await asyncio.gather(*node.tasks)
        assert await described(node) == {"/a": [(1, 0, False)], "/b": [(0, 0, False)]}
        assert len(node.tasks) == 1
        assert store.logs[TopicPartition("t", 0)].size > 1_000_000

    run(main)


def test_moves_that_fail_have_the_errors_of_kafka() -> None:
    async def main(node: FakeNode) -> None:
        store = await with_logs(node)
        assert await alter(node, ("/nowhere", "t", (0,)), ("/a/", "t", (1,))) == dict.fromkeys(
            [("t", 0), ("t", 1)], ErrorCode.LOG_DIR_NOT_FOUND
        )
        name = "x" * 230
        assert await alter(node, ("/nowhere", name, (0,))) == {
            (name, 0): ErrorCode.INVALID_TOPIC_EXCEPTION
        }
        unknown = {
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await alter(node, ("/b", "t", (9,)), ("/b", "nope", (0,))) == unknown
        assert await alter(node, ("/b", "t", (0, 0)), ("/a", "t", (0,))) == {
            ("t", 0): ErrorCode.NONE
        }, "the last entry counts"
        assert not store.moves.under_way
        store.directories[1].failure = "gone"
        assert await alter(node, ("/b", "t", (0,))) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        store.directories[0].failure, store.directories[1].failure = "gone", None
        assert await alter(node, ("/b", "t", (0,))) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}

    run(main)


def test_a_request_for_many_moves_starts_one_in_each_turn() -> None:
    """The start of a move creates two directories and their files."""

    async def main(node: FakeNode) -> None:
        store = await with_logs(node)
        for index in range(100):
            store.create(TopicPartition("u", index), UUID(int=2), LogConfig(), store.directories[0])
        answering = asyncio.create_task(alter(node, ("/b", "u", tuple(range(100)))))
        started = [0]
        while not answering.done():
            await asyncio.sleep(0)
            started.append(len(store.moves.under_way))
        assert set((await answering).values()) == {ErrorCode.NONE}
        assert started[-1] == 100
        steps = [after - before for before, after in pairwise(started)]
        assert max(steps) == 1

    run(main)


def test_a_later_replica_is_created_in_the_requested_directory() -> None:
    async def main(node: FakeNode) -> None:
        store = await with_logs(node)
        store.create(TopicPartition("u", 0), UUID(int=2), LogConfig(), store.directories[1])
        store.create(TopicPartition("u", 1), UUID(int=2), LogConfig(), store.directories[1])
        assert await alter(node, ("/b", "t", (2,))) == {("t", 2): ErrorCode.REPLICA_NOT_AVAILABLE}
        assert store.create(TopicPartition("t", 2), UUID(int=1), LogConfig()).directory.path == "/b"
        assert not store.preferred

    run(main)


@pytest.mark.parametrize("version", [1, 3, 4, 5])
def test_the_size_of_volumes_is_in_version_4(version: int) -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(node, 35, version, DescribeLogDirsRequest(topics=None))
        assert [(result.total_bytes, result.usable_bytes) for result in response.results] == [
            (2**63 - 1, 2**63 - 1)
        ] * 2
        node.world.disk.remove_tree("two")
        response = await answer(node, 35, version, DescribeLogDirsRequest(topics=None))
        assert [result.error_code for result in response.results] == [
            ErrorCode.NONE,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ]

    run(main)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_not_deleted_if_deletion_is_disabled(version: int) -> None:
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST

    async def main(node: FakeNode) -> None:
        node.create("t")
        topic = DeleteTopicsRequest.Topic(name="t")
        request = (
            DeleteTopicsRequest(topics=(topic,))
            if version >= 6
            else DeleteTopicsRequest(topic_names=("t",))
        )
        response = await answer(node, 20, version, request)
        assert [
            (topic.name, topic.error_code, topic.error_message) for topic in response.responses
        ] == [("t", code, "Topic deletion is disabled.")]
        assert "t" in node.image.topics

    run(main, delete_topic_enable="false")


@pytest.mark.parametrize(("version", "epoch"), [(3, -1), (4, 2), (8, 2)])
def test_the_earliest_offset_has_its_leader_epoch(version: int, epoch: int) -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")[0].earliest_epoch = 2
        partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-2)
        request = ListOffsetsRequest(
            topics=(ListOffsetsRequest.Topic(name="t", partitions=(partition,)),)
        )
        (earliest,) = (await answer(node, 2, version, request)).topics[0].partitions
        assert (earliest.offset, earliest.leader_epoch) == (0, epoch)

    run(main)
