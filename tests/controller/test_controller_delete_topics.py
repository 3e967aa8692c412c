"""DeleteTopics."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.controller.topics.delete import delete_topics
from penstock.errors import ErrorCode
from penstock.metadata.image import TOPIC, MetadataImage
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.metadata_topics import (
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.controller.clusters import after, cluster, context

Topic = DeleteTopicsRequest.Topic
A, B = UUID(int=1_001), UUID(int=1_002)


def two_topics() -> MetadataImage:
    records = [
        TopicRecord(name="a", topic_id=A),
        ConfigRecord(resource_type=TOPIC, resource_name="a", name="retention.ms", value="1"),
        PartitionRecord(
            topic_id=A,
            partition_id=0,
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
        TopicRecord(name="b", topic_id=B),
        PartitionRecord(
            topic_id=B,
            partition_id=0,
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
    ]
    return cluster().replay(records, 20)[0]


def deleted(
    *topics: Topic, names: tuple[str, ...] = ()
) -> tuple[list[str], tuple[DeleteTopicsResponse.Response, ...]]:
    """Return the remaining topics, and the results."""
    decision = delete_topics(
        two_topics(), DeleteTopicsRequest(topics=topics, topic_names=names), context()
    )
    return list(after(two_topics(), decision).topics), decision.response.responses


def test_delete_by_name_in_old_and_new_versions() -> None:
    assert deleted(names=("a",))[0] == ["b"]
    left, (response,) = deleted(Topic(name="a"))
    assert (left, response.name, response.topic_id, response.error_code) == (["b"], "a", A, 0)


def test_delete_by_id() -> None:
    left, (response,) = deleted(Topic(topic_id=B))
    assert (left, response.name, response.topic_id, response.error_code) == (["a"], "b", B, 0)


def test_settings_are_deleted_with_the_topic() -> None:
    decision = delete_topics(two_topics(), DeleteTopicsRequest(topic_names=("a",)), context())
    assert decision.records == (RemoveTopicRecord(topic_id=A),)
    assert after(two_topics(), decision).configs == {}


@pytest.mark.parametrize(
    ("topics", "code", "message"),
    [
        (
            [Topic(name="c")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (
            [Topic(topic_id=UUID(int=7_777))],
            ErrorCode.UNKNOWN_TOPIC_ID,
            "This server does not host this topic ID.",
        ),
        ([Topic()], ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
        (
            [Topic(name="a", topic_id=A)],
            ErrorCode.INVALID_REQUEST,
            "You may not specify both topic name and topic id.",
        ),
        ([Topic(name="a"), Topic(name="a")], ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ([Topic(topic_id=A), Topic(topic_id=A)], ErrorCode.INVALID_REQUEST, "Duplicate topic id."),
    ],
)
def test_invalid_requests(topics: list[Topic], code: ErrorCode, message: str) -> None:
    left, (response,) = deleted(*topics)
    assert (left, response.error_code, response.error_message) == (["a", "b"], code, message)


def test_topic_given_by_name_and_by_id_is_not_deleted() -> None:
    left, responses = deleted(Topic(name="a"), Topic(topic_id=A), Topic(name="b"))
    assert left == ["a"]
    assert [response.error_code for response in responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        0,
    ]
