"""Metadata and DescribeTopicPartitions: topics by name and id, automatic creation, pages."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import DESCRIBED_A_TURN
from penstock.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.handlers.fake_node import FakeNode, answer, run

Topic = MetadataRequest.Topic


def named(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=tuple(Topic(name=name) for name in names), **fields)


async def topics_of(
    node: FakeNode, request: MetadataRequest, version: int = 12
) -> dict[str | None, Any]:
    response: MetadataResponse = await answer(node, 3, version, request)
    return {topic.name: topic for topic in response.topics}


def test_brokers_have_the_endpoint_that_the_client_can_reach() -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(node, 3, 12, named())
        assert [
            (broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        ] == [(1, "10.0.0.1", 9092, "rack-a")]
        assert (response.cluster_id, response.controller_id, response.topics) == (
            "the-cluster",
            1,
            (),
        )

    run(main)


@pytest.mark.parametrize(("version", "topics"), [(0, ()), (1, None), (12, None)])
def test_all_topics_are_requested_by_an_empty_list_or_by_null(
    version: int, topics: tuple[()] | None
) -> None:
    async def main(node: FakeNode) -> None:
        node.create("a", 2)
        node.create("__consumer_offsets")
        topics_by_name = await topics_of(node, MetadataRequest(topics=topics), version)
        assert {
            name: (len(topic.partitions), topic.is_internal)
            for name, topic in topics_by_name.items()
        } == {
            "a": (2, False),
            "__consumer_offsets": (1, version > 0),
        }
        assert await topics_of(node, named(), 12) == {}

    run(main)


@pytest.mark.parametrize("version", range(14))
def test_every_version_has_topics_and_errors(version: int) -> None:
    async def main(node: FakeNode) -> None:
        node.create("a")
        topics_by_name = await topics_of(
            node, named("a", "nowhere", allow_auto_topic_creation=False), version
        )
        assert {name: topic.error_code for name, topic in topics_by_name.items()} == {
            "a": 0,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    run(main)


def test_a_partition_is_described_as_in_the_image() -> None:
    async def main(node: FakeNode) -> None:
        node.create("a")
        topic = (await topics_of(node, named("a")))["a"]
        (partition,) = topic.partitions
        assert (
            partition.error_code,
            partition.leader_id,
            partition.replica_nodes,
            partition.isr_nodes,
        ) == (0, 1, (1,), (1,))
        assert partition.offline_replicas == ()
        assert topic.topic_id == node.image.topics["a"].id
        assert topic.topic_authorized_operations == -(2**31)

    run(main)


def test_a_missing_topic_is_created_with_the_defaults_and_returned() -> None:
    async def main(node: FakeNode) -> None:
        topics_by_name = await topics_of(node, named("new", "new"))
        assert (topics_by_name["new"].error_code, len(topics_by_name["new"].partitions)) == (0, 3)
        assert list(node.image.topics) == ["new"]

    run(main, num_partitions="3")


@pytest.mark.parametrize(("allowed", "setting"), [(False, "true"), (True, "false")])
def test_topics_are_created_only_if_request_and_config_allow_it(
    allowed: bool, setting: str
) -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(node, 3, 12, named("new", allow_auto_topic_creation=allowed))
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert node.image.topics == {}

    run(main, auto_create_topics_enable=setting)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "é"])
@pytest.mark.parametrize("allowed", [True, False])
def test_an_invalid_name_is_an_invalid_topic(name: str, allowed: bool) -> None:
    async def main(node: FakeNode) -> None:
        topics_by_name = await topics_of(node, named(name, allow_auto_topic_creation=allowed))
        assert topics_by_name[name].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(main)


def test_a_failed_creation_returns_its_error_and_the_other_topics() -> None:
    async def main(node: FakeNode) -> None:
        node.create("a.b")
        topics_by_name = await topics_of(node, named("a_b", "c"))
        assert topics_by_name["a_b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert topics_by_name["c"].error_code == ErrorCode.NONE

    run(main)


def test_created_topics_are_audited_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(node: FakeNode) -> None:
        node.create("a.b")
        await asyncio.gather(
            topics_of(node, named("a_b", "c", "d")), topics_of(node, named("a_b", "c"))
        )
        await topics_of(node, named("a.b", "c"))

    with caplog.at_level(logging.INFO, "penstock.audit"):
        run(main)
    (line,) = (record.getMessage() for record in caplog.records if record.name == "penstock.audit")
    assert line.startswith("Metadata v12 of client ")
    assert line.endswith(": 'c', 'd': created automatically")


def test_two_clients_that_request_the_same_missing_topic_both_get_it() -> None:
    async def main(node: FakeNode) -> None:
        first, second = await asyncio.gather(
            topics_of(node, named("new")), topics_of(node, named("new"))
        )
        assert first["new"].topic_id == second["new"].topic_id
        assert (first["new"].error_code, second["new"].error_code) == (0, 0)

    run(main)


def test_a_topic_that_another_request_creates_is_retriable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(node: FakeNode) -> None:
        async def already_exists(
            names: list[str], _requester: object
        ) -> dict[str, KafkaError | None]:
            return dict.fromkeys(names, KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "uncommitted"))

        monkeypatch.setattr(node.controllers, "create_missing", already_exists)
        assert (await topics_of(node, named("new")))[
            "new"
        ].error_code == ErrorCode.LEADER_NOT_AVAILABLE

    run(main)


def test_topics_are_requested_by_id_since_version_12() -> None:
    async def main(node: FakeNode) -> None:
        node.create("a")
        topic_id = node.image.topics["a"].id
        request = MetadataRequest(
            topics=(Topic(topic_id=topic_id, name=None), Topic(topic_id=UUID(int=7), name=None))
        )
        response = await answer(node, 3, 12, request)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
            ("a", topic_id, 0),
            (None, UUID(int=7), ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        response = await answer(node, 3, 10, request)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST] * 2

    run(main)


# Kafka's bit fields without an authorizer.
NOT_INCLUDED, TOPIC_OPERATIONS, CLUSTER_OPERATIONS = -(2**31), 3576, 8096


@pytest.mark.parametrize("version", [8, 10, 12, 13])
def test_authorized_operations_are_returned_on_request(version: int) -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        for topics in (named("t", "nowhere").topics, None):
            for included in (False, True):
                cluster = included and version <= 10
                request = MetadataRequest(
                    topics=topics,
                    include_topic_authorized_operations=included,
                    include_cluster_authorized_operations=cluster,
                )
                response = await answer(node, 3, version, request)
                assert {topic.topic_authorized_operations for topic in response.topics} == {
                    TOPIC_OPERATIONS if included else NOT_INCLUDED
                }
                assert response.cluster_authorized_operations == (
                    CLUSTER_OPERATIONS if cluster else NOT_INCLUDED
                )

    run(main, auto_create_topics_enable="false")


def test_a_topic_id_that_does_not_exist_has_no_authorized_operations() -> None:
    async def main(node: FakeNode) -> None:
        request = MetadataRequest(
            topics=(MetadataRequest.Topic(name=None, topic_id=UUID(int=99)),),
            include_topic_authorized_operations=True,
        )
        (topic,) = (await answer(node, 3, 12, request)).topics
        assert (topic.error_code, topic.topic_authorized_operations) == (
            ErrorCode.UNKNOWN_TOPIC_ID,
            NOT_INCLUDED,
        )

    run(main)


def test_described_topics_have_their_authorized_operations() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        topics = tuple(DescribeTopicPartitionsRequest.Topic(name=name) for name in ("t", "no"))
        response = await answer(node, 75, 0, DescribeTopicPartitionsRequest(topics=topics))
        assert [topic.topic_authorized_operations for topic in response.topics] == [
            TOPIC_OPERATIONS
        ] * 2

    run(main)


def described(response: Any) -> list[tuple[str, list[int]]]:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def pages(limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    async def main(node: FakeNode) -> list[list[tuple[str, list[int]]]]:
        node.create("b", 3)
        node.create("a", 2)
        node.create("c", 1)
        all_pages, cursor = [], None
        topics = tuple(DescribeTopicPartitionsRequest.Topic(name=name) for name in names)
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=topics, response_partition_limit=limit, cursor=cursor
            )
            response = await answer(node, 75, 0, request)
            all_pages.append(described(response))
            if response.next_cursor is None:
                return all_pages
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=response.next_cursor.topic_name,
                partition_index=response.next_cursor.partition_index,
            )

    return run(main)


def test_pages_are_sorted_by_topic_name_and_limited() -> None:
    assert pages(2000) == [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]
    assert pages(4) == [[("a", [0, 1]), ("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert pages(5) == [[("a", [0, 1]), ("b", [0, 1, 2])], [("c", [0])]]
    assert pages(0, "c", "a") == [[("a", [0])], [("a", [1])], [("c", [0])]]


def test_unknown_and_invalid_names_have_their_error() -> None:
    async def main(node: FakeNode) -> None:
        topics = tuple(
            DescribeTopicPartitionsRequest.Topic(name=name) for name in ("nowhere", "a/b")
        )
        response = await answer(node, 75, 0, DescribeTopicPartitionsRequest(topics=topics))
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    run(main)


def test_a_cursor_of_a_deleted_topic_continues_with_the_next_topic() -> None:
    async def main(node: FakeNode) -> None:
        node.create("c", 2)
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="b", partition_index=1)
        assert described(
            await answer(node, 75, 0, DescribeTopicPartitionsRequest(cursor=cursor))
        ) == [("c", [0, 1])]

    run(main)


def test_a_large_page_is_built_over_several_turns() -> None:
    async def main(node: FakeNode) -> None:
        for number in range(5):
            node.create(f"topic-{number}", 300)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        request = DescribeTopicPartitionsRequest(response_partition_limit=1_400)
        response = await answer(node, 75, 0, request)
        counting.cancel()
        assert described(response) == [
            *((f"topic-{number}", list(range(300))) for number in range(4)),
            ("topic-4", list(range(200))),
        ]
        assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == (
            "topic-4",
            200,
        )
        assert turns >= 1_400 // DESCRIBED_A_TURN

    run(main)


def test_the_names_of_all_topics_are_sorted_once_for_each_change() -> None:
    async def main(node: FakeNode) -> None:
        node.create("b")
        names = node.metadata.sorted_topic_names
        assert names == ["b"]
        assert node.metadata.sorted_topic_names is names
        node.create("a")
        assert node.metadata.sorted_topic_names == ["a", "b"]

    run(main)
