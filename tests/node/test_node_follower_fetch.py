"""Followers' fetches over simulated connections; the test is the controller."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.handlers import load
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.limits import REMEMBERED_TAIL_BATCHES
from penstock.node.replication import replica_fetcher
from penstock.node.replication.replica_fetcher import whole_batches
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.world.sim.disk import SimFile
from tests.log.making import batch
from tests.node.replicas import CONFIG, TOPIC, TOPIC_ID, Broker, Cluster, run, values


def test_partitions_share_one_connection_and_idle_partitions_are_not_listed() -> None:
    async def main(cluster: Cluster) -> None:
        for index in range(20):
            await cluster.produce("a", index=index)
        assert len(cluster.brokers[1].server._state.connections) == 2
        counters = cluster.brokers[1].server.counters
        before, moved = counters.requests, counters.bytes_in
        await asyncio.sleep(10)
        requests = counters.requests - before
        assert requests <= 2 * 21, "a fetch of an idle follower waits for replica.fetch.wait.max.ms"
        assert (counters.bytes_in - moved) / requests < 120, "and lists no partition"

    run(main, partitions=20)


def test_a_large_response_is_appended_in_pieces() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        for index in range(4):
            cluster.controller.change(index, isr=(1, 2))
            for _ in range(3):
                await cluster.produce("x" * 300_000, index=index)
        cluster.controller.register(3)
        cluster.make(3, replace(CONFIG, segment_bytes=10_000_000))
        await cluster.brokers[3].start()
        await cluster.until(
            lambda: all(cluster.partition(3, index).log_end_offset == 3 for index in range(4))
        )
        assert all(
            values(cluster.partition(3, index)) == values(cluster.partition(1, index))
            for index in range(4)
        )

    run(main, config=replace(CONFIG, segment_bytes=10_000_000), partitions=4)


def test_a_follower_that_catches_up_syncs_what_it_has_before_it_fetches_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that, the kernel makes its event loop wait in a write for other pages."""
    monkeypatch.setattr(replica_fetcher, "CATCH_UP_UNSYNCED_BYTES", 500_000)
    fetched = replace(CONFIG, segment_bytes=10_000_000)

    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        cluster.controller.change(isr=(1, 2))
        for _ in range(12):
            await cluster.produce("x" * 300_000)
        cluster.controller.register(3)
        cluster.make(3, fetched)
        await cluster.brokers[3].start()
        unsynced = 0
        while (follower := cluster.partition(3)).log_end_offset < 12:
            unsynced = max(unsynced, follower.log_end_offset - follower.log.flushing.recovery_point)
            await asyncio.sleep(0.0001)
        assert 0 < unsynced <= 6, "a response has up to 1 MB"
        assert values(follower) == values(cluster.partition(1))

    run(main, config=fetched)


def test_a_response_with_repeated_records_still_updates_the_high_watermark() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        cluster.partition(1).append(batch("b"))
        follower = cluster.partition(2)
        await cluster.until(lambda: follower.log_end_offset == 2)
        assert follower.high_watermark == 1, "the follower does not know it yet"
        fetcher = cluster.brokers[2].replication._fetchers[1]
        (followed,) = fetcher._followed.values()
        assert fetcher._connection is not None
        assert fetcher._connection.in_flight
        repeated = FetchResponse.Response.Partition(
            partition_index=0,
            high_watermark=2,
            log_start_offset=0,
            records=memoryview(values(follower)),
        )
        fetcher._process_partition(followed, repeated)
        assert (follower.log_end_offset, follower.high_watermark) == (2, 2)

    run(main)


def test_records_that_are_not_in_the_page_cache_reach_a_restarted_follower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cold = 0

    def sometimes_cold(self: SimFile, length: int, position: int, /) -> bytes | None:
        nonlocal cold
        cold += 1
        return None if cold % 2 else self.pread(length, position)

    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        for number in range(2 * REMEMBERED_TAIL_BATCHES):
            cluster.partition(1).append(batch(str(number)))
        monkeypatch.setattr(SimFile, "pread_at_once", sometimes_cold)
        cluster.controller.register(3, rack="r3")
        cluster.make(3)
        await cluster.brokers[3].start()
        await cluster.until(
            lambda: cluster.partition(3).log_end_offset == 2 * REMEMBERED_TAIL_BATCHES, within_s=60
        )
        assert values(cluster.partition(3)) == values(cluster.partition(1))
        assert cold > 0

    run(main)


def test_a_follower_reconnects_to_a_leader_that_closed_the_connection() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        for connection in list(cluster.brokers[1].server._state.connections):
            connection.abort()
        await cluster.produce("b")

    run(main)


def test_a_cut_batch_is_left_to_the_next_fetch() -> None:
    whole = batch("a") + batch("b")
    assert bytes(whole_batches(memoryview(whole + batch("c")[:-1]))) == whole
    assert bytes(whole_batches(memoryview(whole))) == whole
    assert bytes(whole_batches(memoryview(whole[:20]))) == b""


def test_an_added_partition_does_not_wait_for_the_fetch_in_flight() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        cluster.controller.change(1, leader=2)
        await cluster.produce("b", leader=2, index=1)
        cluster.controller.change(1, leader=1)
        started = loop.time()
        await cluster.produce("c", index=1)
        assert loop.time() - started < 0.05, "well below replica.fetch.wait.max.ms"

    run(main, partitions=2)


def impostor_fetch(
    broker: Broker, replica: int, epoch: int, session_id: int, session_epoch: int, version: int
) -> FetchResponse:
    """Return the response to a client that poses as a replica. Before v15 there is no epoch."""
    identity: dict[str, Any] = (
        {"replica_state": FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch)}
        if version >= 15
        else {"replica_id": replica}
    )
    partition = FetchRequest.Topic.Partition(partition=0, partition_max_bytes=1_000)
    request = FetchRequest(
        max_bytes=1_000,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=(FetchRequest.Topic(topic=TOPIC, topic_id=TOPIC_ID, partitions=(partition,)),),
        **identity,
    )
    context = RequestContext(
        1, version, 0, "test", "PLAINTEXT", "b1", 9092, "peer", 0.0, ConnectionHandle()
    )
    response = load(1)(broker, request, context)
    assert isinstance(response, FetchResponse)
    return response


def test_a_client_without_the_broker_epoch_does_not_touch_a_followers_session() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        leader = cluster.brokers[1]
        sessions = leader.fetches.sessions
        before = {
            session.id: (session.epoch, session.state.delayed, dict(session.state.partitions))
            for session in sessions._sessions.values()
        }
        epoch = cluster.controller.brokers[2].epoch
        session_id = sessions._followers[2]
        session_epoch = sessions._sessions[session_id].epoch
        for version in (12, 15, 17):
            for broker_epoch in (-1, epoch - 1, epoch + 1):
                for number in (0, session_id):
                    for request_epoch in (0, -1, session_epoch):
                        response = impostor_fetch(
                            leader, 2, broker_epoch, number, request_epoch, version
                        )
                        assert response.session_id == 0
                        assert response.error_code or all(
                            partition.error_code
                            for topic in response.responses
                            for partition in topic.partitions
                        )
        for replica in range(10, 1_000):
            impostor_fetch(leader, replica, 7, 0, 0, 17)
        after = {
            session.id: (session.epoch, session.state.delayed, dict(session.state.partitions))
            for session in sessions._sessions.values()
        }
        assert after == before
        assert set(sessions._followers) == {2, 3}

    run(main)


def test_a_consumer_does_not_close_the_session_of_a_follower() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        sessions = cluster.brokers[1].fetches.sessions
        followers = dict(sessions._followers)
        for request_epoch in (0, -1):
            impostor_fetch(cluster.brokers[1], -1, -1, followers[2], request_epoch, 17)
        assert sessions._followers == followers
        assert set(followers.values()) <= set(sessions._sessions)

    run(main)
