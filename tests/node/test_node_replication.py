"""Leaders, the ISR and fencing over simulated connections; the test is the controller."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import load
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.log.making import batch
from tests.node.replicas import CONFIG, LAG_S, TOPIC, TOPIC_ID, Cluster, run, values


def test_acks_all_completes_when_the_isr_has_the_records_and_followers_learn_of_it() -> None:
    async def main(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        await cluster.produce("a")
        assert [end for end, _watermark in cluster.ends()] == [1, 1, 1]
        started = loop.time()
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        assert loop.time() - started < 0.1, (
            "the leader sends a new high watermark early, even if nothing was appended"
        )
        for value in "bcdef":
            await cluster.produce(value)
        assert (
            values(cluster.partition(1))
            == values(cluster.partition(2))
            == values(cluster.partition(3))
        )

    run(main)


def test_a_disconnected_follower_leaves_the_isr_and_rejoins_when_it_has_caught_up() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.brokers[3].stop()
        end = cluster.partition(1).append(batch("b"), acks_all=True).end_offset
        await cluster.until(lambda: cluster.partition(2).log_end_offset == end)
        assert cluster.partition(1).high_watermark == 1, (
            "the high watermark waits for all of the ISR"
        )
        await asyncio.sleep(LAG_S + 0.1)
        cluster.partition(1).review()
        await cluster.until(lambda: cluster.isr() == (1, 2))
        await cluster.until(lambda: cluster.partition(1).high_watermark == end)
        cluster.controller.register(3, rack="r3")
        cluster.make(3)
        await cluster.brokers[3].start()
        await cluster.until(lambda: cluster.isr() == (1, 2, 3))
        await cluster.produce("c")
        assert cluster.ends()[2][0] == 3

    run(main)


def test_the_maximal_isr_counts_while_an_isr_change_is_pending() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.controller.change(isr=(1, 2))
        cluster.controller.deciding = False
        await cluster.produce("a")
        await cluster.until(lambda: bool(cluster.controller.proposed))
        await cluster.brokers[3].stop()
        with pytest.raises(KafkaError) as late:
            await cluster.produce("b", within_s=1)
        assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
        cluster.controller.fence(3)
        assert cluster.partition(1).high_watermark == 1, (
            "the controller may have accepted the proposal"
        )
        cluster.controller.change(isr=(1, 2))
        await cluster.until(lambda: cluster.partition(1).high_watermark == 2)

    run(main)


def test_with_flush_messages_followers_acknowledge_only_synced_records() -> None:
    async def main(cluster: Cluster) -> None:
        for value in "abc":
            end = await cluster.produce(value)
            for number in (1, 2, 3):
                assert cluster.partition(number).log.flushing.recovery_point >= end

    run(main, config=replace(CONFIG, flush_messages=1))


def fetch_as(
    cluster: Cluster,
    broker: int,
    replica: int,
    epoch: int,
    offset: int,
    rack: str = "",
    version: int = 17,
) -> FetchResponse.Response.Partition:
    """Return the response to a fetch with a chosen replica id, broker epoch and rack."""
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=offset, partition_max_bytes=1_000
    )
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch),
        max_bytes=1_000,
        topics=(FetchRequest.Topic(topic=TOPIC, topic_id=TOPIC_ID, partitions=(partition,)),),
        rack_id=rack,
    )
    context = RequestContext._make(
        (1, version, 0, "test", "PLAINTEXT", "b1", 9092, "peer", 0.0, ConnectionHandle(), None)[
            : len(RequestContext._fields)
        ]
    )
    response = load(1)(cluster.brokers[broker], request, context)
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def test_a_fetch_that_is_not_of_a_current_replica_gets_no_records_and_does_not_count() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        cluster.partition(1).append(batch("b"))
        epoch = cluster.controller.brokers[2].epoch
        for replica, broker_epoch in (
            (2, epoch - 1),
            (2, epoch + 1),
            (2, -1),
            (7, epoch),
            (1, epoch),
        ):
            response = fetch_as(cluster, 1, replica, broker_epoch, 2)
            assert response.error_code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
            assert not response.records
        assert cluster.partition(1).high_watermark == 1
        assert fetch_as(cluster, 1, 2, epoch, 1).records, "a replica reads up to the log's end"
        assert not fetch_as(cluster, 1, -1, -1, 1).records, (
            "a consumer reads up to the high watermark (rule 8)"
        )

    run(main)


def test_consumers_of_version_11_and_later_read_committed_records_from_followers() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        cluster.partition(2).append_fetched(b"", 99, 0)
        assert cluster.partition(2).high_watermark == 1
        assert fetch_as(cluster, 2, -1, -1, 0).records
        old = fetch_as(cluster, 2, -1, -1, 0, version=10)
        assert (old.error_code, bytes(cast(bytes, old.records))) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            b"",
        )
        redirected = fetch_as(cluster, 1, -1, -1, 0, rack="r2")
        assert (redirected.preferred_read_replica, bytes(cast(bytes, redirected.records))) == (
            2,
            b"",
        ), "KIP-392"
        assert fetch_as(cluster, 1, -1, -1, 0, rack="r1").records, "the leader is in that rack"

    run(main)


def test_a_new_leader_does_not_cap_the_end_of_the_last_epoch_at_its_high_watermark() -> None:
    """Otherwise a consumer that has read the committed record takes it for truncated."""

    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        leader, follower = cluster.partition(1), cluster.partition(2)
        learned = asyncio.Event()
        leader.on_change(learned.set)
        leader.append(batch("b"))
        await learned.wait()
        assert (leader.high_watermark, follower.high_watermark) == (2, 1), "not known there yet"
        cluster.controller.change(leader=2, isr=(2, 3))
        assert (follower.is_leader, follower.high_watermark) == (True, 1)
        topic = OffsetForLeaderEpochRequest.Topic
        partition = topic.Partition(partition=0, current_leader_epoch=2, leader_epoch=1)
        response = load(23)(
            cluster.brokers[2],
            OffsetForLeaderEpochRequest(topics=(topic(topic=TOPIC, partitions=(partition,)),)),
            cast(RequestContext, None),
        )
        assert isinstance(response, OffsetForLeaderEpochResponse)
        (result,) = response.topics[0].partitions
        assert (result.error_code, result.leader_epoch, result.end_offset) == (0, 1, 2)

    run(main)
