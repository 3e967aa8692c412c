"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId and DescribeLogDirs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.messages.delete_records import DeleteRecordsRequest
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_offsets import ListOffsetsRequest
from penstock.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.handlers.fake_node import FakeNode, FakePartition, answer, records, run

RequestedTopic = ListOffsetsRequest.Topic


def filled(node: FakeNode) -> FakePartition:
    """Offsets 2 to 8 can be read, to 6 by read_committed; 8 and 9 are not committed."""
    (partition,) = node.create("t")
    partition.append(records(8))
    partition.hold = True
    partition.append(records(2))
    partition.log_start_offset = 2
    partition.first_unstable = 6
    partition.times = {1000: (1000, 3, 1), 2000: (2000, 7, 2), 3000: (3000, 9, 2)}
    return partition


async def offset(
    node: FakeNode,
    timestamp: int,
    version: int = 11,
    *,
    index: int = 0,
    epoch: int = -1,
    **fields: Any,
) -> tuple[int, ...]:
    topic_request = RequestedTopic(
        name="t",
        partitions=(
            RequestedTopic.Partition(
                partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
            ),
        ),
    )
    response = await answer(
        node, 2, version, ListOffsetsRequest(replica_id=-1, topics=(topic_request,), **fields)
    )
    (partition,) = response.topics[0].partitions
    return (partition.error_code, partition.offset, partition.timestamp, partition.leader_epoch)


@pytest.mark.parametrize(
    ("timestamp", "isolation", "expected"),
    [
        (-1, 0, (0, 8, -1, 3)),
        (-1, 1, (0, 6, -1, 3)),
        (-2, 0, (0, 2, -1, -1)),
        (-4, 0, (0, 2, -1, -1)),
        (-5, 0, (0, -1, -1, -1)),
        (-6, 0, (0, -1, -1, -1)),
        (-3, 0, (0, -1, -1, -1)),
        (0, 0, (0, 3, 1000, 1)),
        (1001, 0, (0, 7, 2000, 2)),
        (1001, 1, (0, -1, -1, -1)),
        (2001, 0, (0, -1, -1, -1)),
        (9999, 0, (0, -1, -1, -1)),
    ],
)
def test_offsets_by_special_value_and_by_time(
    timestamp: int, isolation: int, expected: tuple[int, ...]
) -> None:
    """What is not committed is not found: offset 9 has the largest timestamp."""

    async def main(node: FakeNode) -> None:
        filled(node)
        assert await offset(node, timestamp, isolation_level=isolation) == expected

    run(main)


@pytest.mark.parametrize("version", range(1, 12))
def test_leader_epochs_are_returned_from_version_4_on(version: int) -> None:
    async def main(node: FakeNode) -> None:
        filled(node)
        assert await offset(node, -1, version) == (0, 8, -1, 3 if version >= 4 else -1)
        assert await offset(node, 500, version) == (0, 3, 1000, 1 if version >= 4 else -1)

    run(main)


def test_the_largest_timestamp() -> None:
    async def main(node: FakeNode) -> None:
        filled(node).times.pop(3000)
        assert await offset(node, -3) == (0, 7, 2000, 2)

    run(main)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12), (-100, 12)],
)
def test_special_values_by_version(timestamp: int, since: int) -> None:
    async def main(node: FakeNode) -> None:
        filled(node)
        refused = [
            version
            for version in range(1, 12)
            if (await offset(node, timestamp, version))[0] == ErrorCode.UNSUPPORTED_VERSION
        ]
        assert refused == list(range(1, since))

    run(main)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_list_offsets_errors(fields: dict[str, int], code: ErrorCode) -> None:
    async def main(node: FakeNode) -> None:
        filled(node)
        assert (
            await offset(node, -1, index=fields.get("index", 0), epoch=fields.get("epoch", -1))
        )[:2] == (code, -1)

    run(main)


def test_a_partition_asked_for_twice_is_refused() -> None:
    async def main(node: FakeNode) -> None:
        filled(node)
        twice = (RequestedTopic.Partition(timestamp=-1), RequestedTopic.Partition(timestamp=-2))
        response = await answer(
            node, 2, 5, ListOffsetsRequest(topics=(RequestedTopic(name="t", partitions=twice),))
        )
        assert [partition.error_code for partition in response.topics[0].partitions] == [
            ErrorCode.INVALID_REQUEST
        ] * 2

    run(main)


@pytest.mark.parametrize(
    ("epoch", "current", "expected"),
    [
        (1, -1, (0, 1, 4)),
        (3, 3, (0, 3, 10)),
        (9, -1, (0, -1, -1)),
        (1, 2, (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_not_capped_at_the_high_watermark(
    epoch: int, current: int, expected: tuple[int, ...]
) -> None:
    async def main(node: FakeNode) -> None:
        filled(node).epochs = {1: (1, 4), 3: (3, 10)}
        topic = OffsetForLeaderEpochRequest.Topic
        topic_request = topic(
            topic="t",
            partitions=(topic.Partition(leader_epoch=epoch, current_leader_epoch=current),),
        )
        response = await answer(
            node, 23, 4, OffsetForLeaderEpochRequest(replica_id=1, topics=(topic_request,))
        )
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_epoch, partition.end_offset) == expected

    run(main)


async def delete(node: FakeNode, before: int, name: str = "t") -> tuple[int, int]:
    topic = DeleteRecordsRequest.Topic
    topic_request = topic(name=name, partitions=(topic.Partition(offset=before),))
    response = await answer(node, 21, 2, DeleteRecordsRequest(topics=(topic_request,)))
    (partition,) = response.topics[0].partitions
    return partition.error_code, partition.low_watermark


def test_delete_records() -> None:
    async def main(node: FakeNode) -> None:
        filled(node)
        assert await delete(node, 4) == (0, 4)
        assert await delete(node, 3) == (0, 4)
        assert await delete(node, 9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(node, -1) == (0, 8)
        assert await delete(node, 1, "nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        node.create("compacted", cleanup_policy="compact")
        node.create("both", cleanup_policy="compact,delete")
        assert await delete(node, 0, "compacted") == (ErrorCode.POLICY_VIOLATION, -1)
        assert await delete(node, 0, "both") == (0, 0)
        node.create("__consumer_offsets")
        assert await delete(node, 0, "__consumer_offsets") == (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            -1,
        )

    run(main)


def test_producer_ids_are_new_each_time() -> None:
    async def main(node: FakeNode) -> None:
        responses = [
            await answer(node, 22, 5, InitProducerIdRequest(transactional_id=None))
            for _ in range(2)
        ]
        given = InitProducerIdRequest(transactional_id=None, producer_id=1000, producer_epoch=0)
        responses.append(await answer(node, 22, 5, given))
        assert [
            (response.error_code, response.producer_id, response.producer_epoch)
            for response in responses
        ] == [
            (0, 1000, 0),
            (0, 1001, 0),
            (0, 1002, 0),
        ]

    run(main)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": "x"}, ErrorCode.NOT_COORDINATOR),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x", "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x", "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_producers(fields: dict[str, Any], code: ErrorCode) -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(node, 22, 4, InitProducerIdRequest(**fields))
        assert (response.error_code, response.producer_id, response.producer_epoch) == (
            code,
            -1,
            -1,
        )

    run(main)


def test_log_directories_with_their_partitions() -> None:
    async def main(node: FakeNode) -> None:
        first, second, _third = node.create("t", 3)
        first.append(records())
        second.directory = node.replicas.store.directories[1]
        node.create("u")
        response = await answer(node, 35, 5, DescribeLogDirsRequest(topics=None))
        described = {
            directory.log_dir: {
                topic.name: [p.partition_index for p in topic.partitions]
                for topic in directory.topics
            }
            for directory in response.results
        }
        assert described == {"one": {"t": [0, 2], "u": [0]}, "two": {"t": [1]}}
        assert response.results[0].topics[0].partitions[0].partition_size == len(records())
        node.replicas.store.directories[1].failure = "gone"
        some = (DescribeLogDirsRequest.Topic(topic="t", partitions=(0, 1, 99)),)
        response = await answer(node, 35, 5, DescribeLogDirsRequest(topics=some))
        assert [
            (directory.error_code, len(directory.topics)) for directory in response.results
        ] == [
            (0, 1),
            (ErrorCode.KAFKA_STORAGE_ERROR, 0),
        ]

    run(main)
