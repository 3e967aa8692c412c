"""Leaders and followers over simulated connections, with the test in the controller's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import load
from penstock.handlers.context import RequestContext
from penstock.ids import TopicPartition
from penstock.limits import REMEMBERED_TAIL_BATCHES
from penstock.node.partition.partition import Partition
from penstock.node.replication.fetched import whole_batches
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.world.sim import Simulation
from penstock.world.sim.disk import SimFile
from tests.log.making import SMALL, batch
from tests.node.replicas import TOPIC, TOPIC_ID, Broker, Controller

CONFIG = replace(SMALL, min_insync_replicas=2, segment_bytes=100_000)
LAG_S = 30.0


class Cluster:
    """Three brokers; `leader` and the followers are those of partition 0 at the start."""

    def __init__(self, simulation: Simulation, config: LogConfig, partitions: int) -> None:
        self.simulation = simulation
        self.controller = Controller(partitions=partitions)
        self.brokers: dict[int, Broker] = {}
        for number in (1, 2, 3):
            self.controller.register(number, rack=f"r{number}")
            self.make(number, config)

    def make(self, number: int, config: LogConfig = CONFIG) -> None:
        world = self.simulation.node(f"b{number}").world
        self.brokers[number] = Broker(
            self.controller, world, number, f"b{number}", 9092, "/d", config, LAG_S
        )

    def partition(self, broker: int, index: int = 0) -> Partition:
        return self.brokers[broker].partitions[TopicPartition(TOPIC, index)]

    def ends(self, index: int = 0) -> list[tuple[int, int]]:
        return [
            (self.partition(n, index).log_end_offset, self.partition(n, index).high_watermark)
            for n in self.brokers
        ]

    async def produce(
        self, *values: str, leader: int = 1, index: int = 0, within_s: float = 5.0
    ) -> int:
        partition = self.partition(leader, index)
        end = partition.append(batch(*values), acks_all=True).end_offset
        await partition.wait_committed(end, asyncio.get_running_loop().time() + within_s)
        return end

    async def until(self, condition: Callable[[], bool], within_s: float = 10.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.001)

    def isr(self) -> tuple[int, ...]:
        return self.controller.states[0].isr


def run(
    test: Callable[[Cluster], Coroutine[Any, Any, None]],
    *,
    config: LogConfig = CONFIG,
    partitions: int = 1,
    seed: int = 1,
) -> None:
    simulation = Simulation(seed)

    async def main() -> None:
        cluster = Cluster(simulation, config, partitions)
        for broker in cluster.brokers.values():
            await broker.start()
        await test(cluster)
        for broker in list(cluster.brokers.values()):
            await broker.stop()

    simulation.run(main())


def values(partition: Partition) -> bytes:
    found = partition.log.read(
        partition.log_start_offset, 1_000_000, below=partition.log_end_offset
    )
    return b"" if found is None else found.read()


def test_acks_all_is_answered_when_all_in_sync_have_it_and_followers_hear_of_the_watermark_soon() -> (
    None
):
    async def main(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        await cluster.produce("a")
        assert [end for end, _watermark in cluster.ends()] == [1, 1, 1]
        began = loop.time()
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        assert loop.time() - began < 0.1, (
            "though nothing was appended: a stale watermark is told early"
        )
        for value in "bcdef":
            await cluster.produce(value)
        assert (
            values(cluster.partition(1))
            == values(cluster.partition(2))
            == values(cluster.partition(3))
        )

    run(main)


def test_many_partitions_share_one_connection_and_idle_ones_cost_nothing() -> None:
    async def main(cluster: Cluster) -> None:
        for index in range(20):
            await cluster.produce("a", index=index)
        assert len(cluster.brokers[1].server._state.connections) == 2
        counters = cluster.brokers[1].server.counters
        before, moved = counters.requests, counters.bytes_in
        await asyncio.sleep(10)
        requests = counters.requests - before
        assert requests <= 2 * 21, "a fetch of an idle follower waits for replica.fetch.wait.max.ms"
        assert (counters.bytes_in - moved) / requests < 120, "and names no partition"

    run(main, partitions=20)


def test_a_follower_that_is_cut_off_leaves_and_rejoins_when_it_has_caught_up() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.brokers[3].stop()
        end = cluster.partition(1).append(batch("b"), acks_all=True).end_offset
        await cluster.until(lambda: cluster.partition(2).log_end_offset == end)
        assert cluster.partition(1).high_watermark == 1, "the watermark waits for all in sync"
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


def test_while_a_change_is_pending_the_larger_set_counts() -> None:
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
            "whether the controller took the proposal is not known"
        )
        cluster.controller.change(isr=(1, 2))
        await cluster.until(lambda: cluster.partition(1).high_watermark == 2)

    run(main)


def test_a_tail_that_was_not_replicated_is_cut_at_the_diverging_epoch() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a", "b")
        await cluster.until(lambda: cluster.ends() == [(2, 2)] * 3)
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        cluster.partition(1).append(batch("lost"))
        cluster.partition(1).append(batch("lost too"))
        cluster.controller.change(leader=2)
        cluster.partition(2).append(batch("kept"))
        await cluster.until(lambda: cluster.ends() == [(3, 3)] * 3)
        assert (
            values(cluster.partition(1))
            == values(cluster.partition(2))
            == values(cluster.partition(3))
        )
        assert b"lost" not in values(cluster.partition(1))

    run(main)


def test_an_epoch_without_records_is_no_divergence() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        for leader in (2, 3, 1, 2):
            cluster.controller.change(leader=leader)
        await cluster.produce("b", leader=2)
        assert [end for end, _watermark in cluster.ends()] == [2, 2, 2]

    run(main)


def test_a_word_to_cut_from_a_leader_of_an_earlier_epoch_is_not_taken() -> None:
    async def main(cluster: Cluster) -> None:
        from penstock.replica.follower import DivergingEpoch

        await cluster.produce("a", "b")
        follower = cluster.partition(3)
        order = follower.truncate(follower.leader_epoch, DivergingEpoch(1, 0))
        cluster.controller.change(leader=2)
        await order
        assert follower.log_end_offset == 2

    run(main)


def test_a_follower_that_is_elected_while_it_cuts_leads_when_it_has_cut() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a", "b")
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        old = cluster.partition(1)
        old.append(batch("lost"))
        cluster.controller.change(leader=2)
        await cluster.until(lambda: old.is_truncating)
        cluster.controller.change(leader=1)
        assert not old.is_leader
        await cluster.until(lambda: old.is_leader)
        assert old.log_end_offset == 2
        await cluster.produce("c")
        assert [end for end, _watermark in cluster.ends()] == [3, 3, 3]

    run(main)


def test_a_follower_below_the_leaders_start_begins_there() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        cluster.controller.change(isr=(1, 2))
        for value in "abcd":
            await cluster.produce(value)
        cluster.partition(1).delete_records(3)
        cluster.controller.register(3)
        cluster.make(3)
        await cluster.brokers[3].start()
        await cluster.until(lambda: cluster.isr() == (1, 2, 3))
        assert (cluster.partition(3).log_start_offset, cluster.partition(3).log_end_offset) == (
            3,
            4,
        )
        await cluster.until(lambda: cluster.partition(2).log_start_offset == 3)

    run(main)


def test_with_a_flush_setting_followers_acknowledge_only_what_is_on_their_disks() -> None:
    async def main(cluster: Cluster) -> None:
        for value in "abc":
            end = await cluster.produce(value)
            for number in (1, 2, 3):
                assert cluster.partition(number).log.flushing.recovery_point >= end

    run(main, config=replace(CONFIG, flush_messages=1))


def test_a_large_answer_is_appended_in_pieces() -> None:
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


def test_records_that_come_again_by_an_answer_that_was_outrun_still_tell_how_far_the_leader_is() -> (
    None
):
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        cluster.partition(1).append(batch("b"))
        follower = cluster.partition(2)
        await cluster.until(lambda: follower.log_end_offset == 2)
        assert follower.high_watermark == 1, "it has not heard of it yet"
        fetcher = cluster.brokers[2].replication._fetchers[1]
        (followed,) = fetcher._followed.values()
        assert fetcher._link is not None
        assert fetcher._link.in_flight
        again = FetchResponse.Response.Partition(
            partition_index=0,
            high_watermark=2,
            log_start_offset=0,
            records=memoryview(values(follower)),
        )
        fetcher._take_one(followed, again)
        assert (follower.log_end_offset, follower.high_watermark) == (2, 2)

    run(main)


def test_old_records_that_are_not_in_memory_reach_a_follower_that_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cold = 0

    def not_at_once(self: SimFile, length: int, position: int, /) -> bytes | None:
        nonlocal cold
        cold += 1
        return None if cold % 2 else self.pread(length, position)

    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        for number in range(2 * REMEMBERED_TAIL_BATCHES):
            cluster.partition(1).append(batch(str(number)))
        monkeypatch.setattr(SimFile, "pread_at_once", not_at_once)
        cluster.controller.register(3, rack="r3")
        cluster.make(3)
        await cluster.brokers[3].start()
        await cluster.until(
            lambda: cluster.partition(3).log_end_offset == 2 * REMEMBERED_TAIL_BATCHES, within_s=60
        )
        assert values(cluster.partition(3)) == values(cluster.partition(1))
        assert cold > 0

    run(main)


def test_a_leader_that_closes_the_connection_is_fetched_from_again() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        for connection in list(cluster.brokers[1].server._state.connections):
            connection.abort()
        await cluster.produce("b")

    run(main)


def fetch_as(
    cluster: Cluster,
    broker: int,
    replica: int,
    epoch: int,
    offset: int,
    rack: str = "",
    version: int = 17,
) -> FetchResponse.Response.Partition:
    """What a request gets that is not of our own making."""
    asked = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=offset, partition_max_bytes=1_000
    )
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch),
        max_bytes=1_000,
        topics=(FetchRequest.Topic(topic=TOPIC, topic_id=TOPIC_ID, partitions=(asked,)),),
        rack_id=rack,
    )
    context = RequestContext._make(
        (1, version, 0, "test", "PLAINTEXT", "b1", 9092, "peer", 0.0, None)[
            : len(RequestContext._fields)
        ]
    )
    response = load(1)(cluster.brokers[broker], request, context)
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def test_who_is_no_replica_in_its_present_life_sees_nothing_and_counts_for_nothing() -> None:
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
            answer = fetch_as(cluster, 1, replica, broker_epoch, 2)
            assert answer.error_code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
            assert not answer.records
        assert cluster.partition(1).high_watermark == 1
        assert fetch_as(cluster, 1, 2, epoch, 1).records, "the broker itself sees up to the end"
        assert not fetch_as(cluster, 1, -1, -1, 1).records, (
            "and a consumer up to the watermark (invariant 8)"
        )

    run(main)


def test_consumers_may_read_from_followers_what_is_committed_if_they_know_of_it() -> None:
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
        elsewhere = fetch_as(cluster, 1, -1, -1, 0, rack="r2")
        assert (elsewhere.preferred_read_replica, bytes(cast(bytes, elsewhere.records))) == (
            2,
            b"",
        ), "KIP-392"
        assert fetch_as(cluster, 1, -1, -1, 0, rack="r1").records, (
            "the leader is in that rack itself"
        )

    run(main)


def test_a_batch_that_is_cut_waits_for_the_next_fetch() -> None:
    whole = batch("a") + batch("b")
    assert bytes(whole_batches(memoryview(whole + batch("c")[:-1]))) == whole
    assert bytes(whole_batches(memoryview(whole))) == whole
    assert bytes(whole_batches(memoryview(whole[:20]))) == b""


def test_a_follower_whose_leader_changes_while_it_cuts_follows_the_next_one() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a", "b")
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        old = cluster.partition(1)
        old.append(batch("lost"))
        cluster.controller.change(leader=2)
        await cluster.until(lambda: old.is_truncating)
        cluster.controller.change(leader=3)
        await cluster.produce("c", leader=3)
        assert [end for end, _watermark in cluster.ends()] == [3, 3, 3]

    run(main)


def test_a_follower_that_begins_within_a_batch_of_its_leader_has_the_whole_batch() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        cluster.controller.change(isr=(1, 2))
        await cluster.produce("a", "b", "c")
        cluster.partition(1).delete_records(1)
        cluster.controller.register(3)
        cluster.make(3)
        await cluster.brokers[3].start()
        await cluster.until(lambda: cluster.isr() == (1, 2, 3))
        assert values(cluster.partition(3)) == values(cluster.partition(1))
        await cluster.until(lambda: cluster.partition(3).log_start_offset == 1)

    run(main)


def test_a_partition_that_comes_does_not_wait_for_the_fetch_under_way() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        cluster.controller.change(1, leader=2)
        await cluster.produce("b", leader=2, index=1)
        cluster.controller.change(1, leader=1)
        began = loop.time()
        await cluster.produce("c", index=1)
        assert loop.time() - began < 0.05, "well below replica.fetch.wait.max.ms"

    run(main, partitions=2)
