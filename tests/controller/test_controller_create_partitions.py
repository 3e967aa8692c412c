"""CreatePartitions."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.controller.topics.create_partitions import create_partitions
from penstock.errors import ErrorCode
from penstock.metadata.image import MetadataImage, PartitionState
from penstock.metadata.snapshot import partition_record
from penstock.protocol.internal.metadata_topics import TopicRecord
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from tests.controller.clusters import after, broker, cluster, context

Topic = CreatePartitionsRequest.Topic
A = UUID(int=1_001)


def one_topic() -> MetadataImage:
    """Return an image with topic a, two partitions of two replicas, and three brokers, the third
    fenced."""
    state = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, directories=(A, A))
    records = [
        TopicRecord(name="a", topic_id=A),
        *(partition_record(A, index, state) for index in range(2)),
    ]
    return cluster(broker(1), broker(2), broker(3, fenced=True)).replay(records, 20)[0]


def requested(count: int, *assignments: tuple[int, ...], name: str = "a") -> Topic:
    chosen = tuple(Topic.Assignment(broker_ids=ids) for ids in assignments)
    return Topic(name=name, count=count, assignments=chosen or None)


def extended(
    *topics: Topic, validate_only: bool = False
) -> tuple[MetadataImage, tuple[CreatePartitionsResponse.Result, ...]]:
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    decision = create_partitions(one_topic(), request, context())
    return after(one_topic(), decision), decision.response.results


def test_new_partitions_have_the_replication_factor_of_the_topic() -> None:
    image, (result,) = extended(requested(5))
    partitions = image.topics["a"].partitions
    assert (result.error_code, list(partitions)) == (0, [0, 1, 2, 3, 4])
    assert all(
        set(partitions[index].replicas) == {1, 2} and partitions[index].leader_epoch == 0
        for index in (2, 3, 4)
    )


def test_manual_assignment() -> None:
    image, (result,) = extended(requested(4, (2, 1), (3, 2)))
    partitions = image.topics["a"].partitions
    assert result.error_code == 0
    assert (partitions[2].replicas, partitions[2].leader) == ((2, 1), 2)
    assert (partitions[3].replicas, partitions[3].isr, partitions[3].leader) == ((3, 2), (2,), 2)


def test_validate_only_writes_no_record() -> None:
    image, (result,) = extended(requested(5), validate_only=True)
    assert (image, result.error_code) == (one_topic(), 0)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            requested(3, name="b"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (requested(2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            requested(1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            requested(-1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic a currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            requested(2**31 - 1),
            ErrorCode.POLICY_VIOLATION,
            "Unable to perform excessively large batch operation.",
        ),
        (
            requested(4, (1, 2)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            requested(3, (1,)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is "
            "not consistent with previous partitions, "
            "which have 2 replica(s).",
        ),
    ],
)
def test_invalid_requests(topic: Topic, code: ErrorCode, message: str) -> None:
    image, (result,) = extended(topic)
    assert (image, result.error_code, result.error_message) == (one_topic(), code, message)


def test_duplicate_name_is_refused() -> None:
    image, (result,) = extended(requested(3), requested(4))
    assert (image, result.error_code, result.error_message) == (
        one_topic(),
        ErrorCode.INVALID_REQUEST,
        "Duplicate topic name.",
    )
