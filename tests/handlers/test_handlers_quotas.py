"""Fetch with a quota, with and without sessions; DescribeClientQuotas."""

from __future__ import annotations

import asyncio

from penstock.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.protocol.messages.fetch import FetchResponse
from penstock.security.quotas.entities import QuotaEntity
from tests.handlers.fake_node import FakeNode, answer, run
from tests.handlers.test_handlers_fetch import BATCH, SIZE, part, request, sizes
from tests.handlers.test_handlers_fetch_sessions import Fetcher
from tests.metadata.test_metadata_client_quotas import record

EVERYBODY: QuotaEntity = (("user", None),)


def limit(node: FakeNode, rate: float) -> None:
    """Let every user fetch so many bytes per second: at once, those of ten seconds."""
    node.parts.quotas.apply([EVERYBODY], {EVERYBODY: {"consumer_byte_rate": rate}})


async def fetched(node: FakeNode, offset: int = 0, wait_ms: int = 0) -> tuple[list[int], int]:
    """Return the sizes of the records, and the throttle time."""
    response: FetchResponse = await answer(
        node, 1, 12, request(part(offset=offset, limit=SIZE), wait_ms=wait_ms)
    )
    assert response.error_code == 0
    partitions = [each for topic in response.responses for each in topic.partitions]
    return sizes(partitions), response.throttle_time_ms


def test_a_consumer_beyond_its_quota_gets_an_empty_response() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(4):
            partition.append(BATCH)
        limit(node, SIZE / 5)
        assert await fetched(node, 0) == ([SIZE], 0)
        assert await fetched(node, 1) == ([SIZE], 0)
        assert await fetched(node, 2) == ([], 5_000)
        assert partition.traffic.bytes_out == 2 * SIZE
        # The first records are forgotten after eleven windows.
        await asyncio.sleep(11)
        assert await fetched(node, 2) == ([SIZE], 0)

    run(main)


def test_a_response_is_not_larger_than_what_the_quota_allows_at_once() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(10):
            partition.append(BATCH)
        limit(node, SIZE / 4)
        response: FetchResponse = await answer(node, 1, 12, request(part(limit=100 * SIZE)))
        (topic,) = response.responses
        assert sizes(list(topic.partitions)) == [2 * SIZE]
        assert response.throttle_time_ms == 0

    run(main)


def test_a_batch_larger_than_the_quota_is_not_withheld_forever() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        for _ in range(2):
            partition.append(BATCH)
        limit(node, SIZE / 100)
        assert await fetched(node, 0) == ([SIZE], 0)
        assert await fetched(node, 1) == ([], 100_000)
        await asyncio.sleep(100)
        assert await fetched(node, 1) == ([SIZE], 0)

    run(main)


def test_a_delayed_fetch_is_charged_when_it_is_answered() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        limit(node, SIZE / 10)
        first = asyncio.ensure_future(fetched(node, 0, wait_ms=1_000))
        await asyncio.sleep(0.1)
        partition.append(BATCH)
        assert await first == ([SIZE], 0)
        second = asyncio.ensure_future(fetched(node, 1, wait_ms=1_000))
        await asyncio.sleep(0.1)
        partition.append(BATCH)
        records, throttle_ms = await second
        assert records == []
        assert 9_000 < throttle_ms < 10_100
        assert not partition.watchers

    run(main)


def test_a_throttled_session_goes_on_and_loses_nothing() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.append(BATCH)
        fetcher = Fetcher(node)
        assert set(await fetcher.fetch(part(0))) == {0}
        session = fetcher.session_id
        assert session
        limit(node, SIZE / 10)
        partition.append(BATCH)
        assert (await fetcher.fetch(part(0, offset=1)))[0].records == BATCH
        partition.append(BATCH)
        assert await fetcher.fetch(part(0, offset=2)) == {}
        assert fetcher.session_id == session
        await asyncio.sleep(11)
        # The request names no partition: the records are still due.
        assert (await fetcher.fetch())[0].records == BATCH

    run(main)


def test_a_throttled_fetch_opens_no_session() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.append(BATCH)
        limit(node, SIZE / 10)
        assert await fetched(node, 0) == ([SIZE], 0)
        fetcher = Fetcher(node)
        assert await fetcher.fetch(part(0)) == {}
        assert fetcher.session_id == 0
        assert len(node.parts.fetches.sessions) == 0

    run(main)


def test_quotas_are_described_from_the_metadata() -> None:
    async def main(node: FakeNode) -> None:
        node.image = node.image.replay(
            [record(("user", "a"), ("client-id", None), key="x"), record(("ip", "::1"), value=2.0)],
            node.image.offset + 1,
        )[0]
        for version in (0, 1):
            response: DescribeClientQuotasResponse = await answer(
                node, 48, version, DescribeClientQuotasRequest()
            )
            assert response.entries is not None
            assert [
                {part.entity_type: part.entity_name for part in entry.entity}
                for entry in response.entries
            ] == [{"client-id": None, "user": "a"}, {"ip": "::1"}]
        component = DescribeClientQuotasRequest.Component(
            entity_type="user", match_type=1, match="a"
        )
        refused: DescribeClientQuotasResponse = await answer(
            node, 48, 1, DescribeClientQuotasRequest(components=(component,))
        )
        assert (refused.error_code, refused.entries) == (42, None)

    run(main)


def test_topics_beyond_the_quota_of_the_client_are_refused() -> None:
    async def main(node: FakeNode) -> None:
        node.parts.quotas.apply([EVERYBODY], {EVERYBODY: {"controller_mutation_rate": 1.0}})
        topics = tuple(
            CreateTopicsRequest.Topic(name=name, num_partitions=20, replication_factor=1)
            for name in ("a", "b")
        )
        response: CreateTopicsResponse = await answer(
            node, 19, 6, CreateTopicsRequest(topics=topics)
        )
        assert [topic.error_code for topic in response.topics] == [
            0,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ]
        assert response.throttle_time_ms == 9_000
        # Version 5 does not know the error.
        response = await answer(node, 19, 5, CreateTopicsRequest(topics=topics[1:]))
        assert [topic.error_code for topic in response.topics] == [0]
        assert response.throttle_time_ms == 29_000

    run(main)
