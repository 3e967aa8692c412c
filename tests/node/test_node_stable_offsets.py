"""The last stable offset of replicas that are truncated, restarted or elected (rules 8 and 15)."""

from __future__ import annotations

import asyncio

from tests.log.making import batch
from tests.node.replicas import Cluster, run
from tests.node.test_node_marker_writer import begin, marker, request, writer_of


async def commit(cluster: Cluster, producer: int) -> None:
    """Write a transaction of two offsets on broker 1, and let all replicas have it."""
    leader = cluster.partition(1)
    begin(leader, producer)
    await writer_of(cluster.brokers[1]).write(request(marker(producer)))
    end = leader.log_end_offset
    await cluster.until(lambda: cluster.ends() == [(end, end)] * 3)


def test_the_last_stable_offset_does_not_go_back_during_a_truncation() -> None:
    """Consumers in its rack read from a follower while it is truncated."""

    async def test(cluster: Cluster) -> None:
        for producer in (1, 2, 3):
            await commit(cluster, producer)
        old = cluster.partition(1)
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        old.append(batch("lost"))
        assert old.last_stable_offset == 6
        cluster.controller.change(leader=2)
        await cluster.until(lambda: old.is_truncating)
        seen = set()
        while old.is_truncating:
            seen.add(old.last_stable_offset)
            await asyncio.sleep(0.00001)
        assert old.log_end_offset == 6
        assert seen == {6}
        assert old.last_stable_offset == 6

    run(test)


def test_a_truncation_keeps_transactions_whose_marker_may_still_be_lost() -> None:
    """A snapshot has open transactions only."""

    async def test(cluster: Cluster) -> None:
        old = cluster.partition(1)
        await commit(cluster, 1)
        begin(old, 2)
        old.append(batch("between"))
        await cluster.until(lambda: cluster.ends() == [(4, 4)] * 3)
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        waiting = asyncio.ensure_future(writer_of(cluster.brokers[1]).write(request(marker(2))))
        await asyncio.sleep(0)
        old.log.roll()
        old.append(batch("tail"))
        assert (old.high_watermark, old.last_stable_offset) == (4, 2)
        old.log.truncate_to(5)
        assert (old.high_watermark, old.last_stable_offset) == (4, 2)
        waiting.cancel()

    run(test)
