"""DeleteRecords waits for the live replicas; the test is the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

import pytest

from penstock.errors import ErrorCode
from penstock.handlers import load
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tests.node.replicas import TOPIC, Cluster, run


async def delete(cluster: Cluster, before: int, timeout_ms: int = 10_000) -> tuple[int, int]:
    """Return the error and the low watermark of partition 0."""
    topic = DeleteRecordsRequest.Topic
    request = DeleteRecordsRequest(
        topics=(topic(name=TOPIC, partitions=(topic.Partition(offset=before),)),),
        timeout_ms=timeout_ms,
    )
    response = load(21)(cluster.brokers[1], request, cast(RequestContext, None))
    if isinstance(response, Awaitable):
        response = await response
    assert isinstance(response, DeleteRecordsResponse)
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


async def filled(cluster: Cluster) -> None:
    for value in "abc":
        await cluster.produce(value)
    await cluster.until(lambda: cluster.ends() == [(3, 3)] * 3)


def starts(cluster: Cluster) -> list[int]:
    return [cluster.partition(number).log_start_offset for number in (1, 2, 3)]


def test_the_response_waits_until_all_live_replicas_have_deleted_the_records() -> None:
    async def main(cluster: Cluster) -> None:
        await filled(cluster)
        assert await delete(cluster, 2) == (ErrorCode.NONE, 2)
        assert starts(cluster) == [2, 2, 2]
        assert await delete(cluster, -1) == (ErrorCode.NONE, 3)
        assert starts(cluster) == [3, 3, 3]
        assert await delete(cluster, 1, timeout_ms=0) == (ErrorCode.NONE, 3), "deleted long ago"

    run(main)


def test_a_replica_that_does_not_fetch_delays_the_response_until_the_timeout() -> None:
    async def main(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.brokers[3].replication.unfollow(cluster.partition(3))
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await delete(cluster, 2, timeout_ms=700) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert loop.time() - started == pytest.approx(0.7, abs=0.05)
        assert starts(cluster) == [2, 2, 0], "the leader has deleted the records nevertheless"
        assert await delete(cluster, 3, timeout_ms=0) == (ErrorCode.REQUEST_TIMED_OUT, 0)

    run(main)


def test_a_fenced_replica_is_not_waited_for() -> None:
    async def main(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.brokers[3].replication.unfollow(cluster.partition(3))
        waiting = asyncio.ensure_future(delete(cluster, 2))
        await asyncio.sleep(1)
        assert not waiting.done()
        cluster.controller.fence(3)
        assert await waiting == (ErrorCode.NONE, 2)

    run(main)


def test_a_leader_that_resigns_fails_the_request() -> None:
    async def main(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.brokers[3].replication.unfollow(cluster.partition(3))
        waiting = asyncio.ensure_future(delete(cluster, 2))
        await asyncio.sleep(1)
        cluster.controller.change(leader=2)
        assert await waiting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(main)


def test_a_follower_reports_a_log_start_that_retention_had_moved_before() -> None:
    async def main(cluster: Cluster) -> None:
        await filled(cluster)
        assert cluster.partition(2).log.advance_start(2)
        assert await delete(cluster, 1, timeout_ms=1_000) == (ErrorCode.NONE, 1)
        assert starts(cluster) == [1, 2, 1]

    run(main)
