"""Throttled replication between brokers over simulated connections: a replica that is not in sync
catches up at the configured rate, and no other replica waits (KIP-73)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.replica.throttle import ReplicaThrottle
from tests.log.making import batch
from tests.node import replicas
from tests.node.replicas import CONFIG, Cluster, run

# Broker 3 is added, and has nothing yet. Partition 0 is throttled, partition 1 is not.
VALUES = 200
SIZE = 1_000
BEFORE = VALUES * SIZE
RATE = 20_000
SIDES = ("leader", "follower")

Test = Callable[[Cluster], Awaitable[None]]


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch gets less than a second's worth of a partition."""
    properties = f"{replicas._PROPERTIES}replica.fetch.max.bytes={RATE // 2}\n"
    monkeypatch.setattr(replicas, "_PROPERTIES", properties)


def throttled(side: str, test: Test, *, listed: tuple[str, ...], partitions: int = 2) -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        for index in range(partitions):
            cluster.controller.change(index, replicas=(1, 2), isr=(1, 2), leader=1)
            for number in range(VALUES // 10):
                values = [f"{number}-{n}".ljust(SIZE, "x") for n in range(10)]
                cluster.partition(1, index).append(batch(*values), acks_all=True)
        await cluster.until(
            lambda: all(cluster.partition(1, n).high_watermark == VALUES for n in range(partitions))
        )
        for broker in cluster.brokers.values():
            throttle_of(cluster, side, broker.node_id).set_rate(RATE, broker.clock.monotonic())
        cluster.controller.register(3, rack="r3")
        cluster.make(3, config)
        for index in range(partitions):
            cluster.controller.change(index, replicas=(1, 2, 3))
        throttle_of(cluster, side, 3).set_rate(RATE, cluster.brokers[3].clock.monotonic())
        await cluster.brokers[3].start()
        await test(cluster)

    is_leader = side == "leader"
    config = replace(
        CONFIG,
        leader_replication_throttled_replicas=listed if is_leader else (),
        follower_replication_throttled_replicas=() if is_leader else listed,
    )
    run(main, config=config, partitions=partitions)


def throttle_of(cluster: Cluster, side: str, broker: int) -> ReplicaThrottle:
    throttles = cluster.brokers[broker].env.throttles
    return throttles.leader if side == "leader" else throttles.follower


def listed_for(side: str, *indexes: int) -> tuple[str, ...]:
    return tuple(f"{index}:{1 if side == 'leader' else 3}" for index in indexes)


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_replica_catches_up_at_the_rate_and_the_others_do_not_wait(side: str) -> None:
    async def main(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.until(lambda: cluster.partition(3, 1).log_end_offset == VALUES)
        await cluster.until(lambda: 3 in cluster.controller.states[1].isr)
        assert loop.time() - begun < 1.0, "partition 1 is not throttled"
        # An in-sync replica of the throttled partition does not wait either.
        asked = loop.time()
        await cluster.produce("y", index=0)
        assert loop.time() - asked < 0.5
        assert cluster.partition(3, 0).log_end_offset < VALUES
        await cluster.until(lambda: 3 in cluster.controller.states[0].isr, within_s=60)
        took = loop.time() - begun
        assert BEFORE / RATE * 0.6 < took < BEFORE / RATE * 1.5 + 2

    throttled(side, main, listed=listed_for(side, 0))


@pytest.mark.parametrize("side", SIDES)
def test_a_rate_that_is_removed_no_longer_holds_back(side: str) -> None:
    async def main(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        await cluster.until(lambda: cluster.partition(3, 1).log_end_offset == VALUES)
        assert cluster.partition(3, 0).log_end_offset < VALUES
        for broker in cluster.brokers.values():
            throttle_of(cluster, side, broker.node_id).set_rate(2**63 - 1, loop.time())
        removed = loop.time()
        await cluster.until(lambda: 3 in cluster.controller.states[0].isr)
        assert loop.time() - removed < 2.5

    throttled(side, main, listed=listed_for(side, 0))


@pytest.mark.parametrize("side", SIDES)
def test_many_throttled_partitions_share_the_rate(side: str) -> None:
    count = 12

    async def main(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.until(
            lambda: any(cluster.partition(3, n).log_end_offset for n in range(count))
        )
        await cluster.until(
            lambda: all(3 in cluster.controller.states[n].isr for n in range(count)), within_s=600
        )
        took = loop.time() - begun
        expected = count * BEFORE / RATE
        assert expected * 0.7 < took < expected * 1.4 + 2

    throttled(side, main, listed=("*",), partitions=count)


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_leader_does_not_answer_in_a_loop(side: str) -> None:
    """While a follower must wait, its fetches wait too."""

    async def main(cluster: Cluster) -> None:
        fetches = 0
        start = cluster.brokers[1].fetches.fetch

        def counted(*args: object, **kwargs: object) -> object:
            nonlocal fetches
            fetches += 1
            return start(*args, **kwargs)  # type: ignore[arg-type]

        cluster.brokers[1].fetches.fetch = counted  # type: ignore[method-assign, assignment]
        await asyncio.sleep(5.0)
        assert cluster.partition(3, 0).log_end_offset < VALUES
        assert fetches < 100

    throttled(side, main, listed=listed_for(side, 0), partitions=1)


def test_a_rate_that_is_removed_during_a_fetch_and_set_again_does_not_stall_the_others() -> None:
    """A partition whose records came while no rate was set counted as fetching for ever. It took
    the room of all others in the next rate."""

    async def main(cluster: Cluster) -> None:
        (fetcher,) = cluster.brokers[3].replication._fetchers.values()
        await cluster.until(lambda: 0 < cluster.partition(3, 0).log_end_offset < VALUES)
        await cluster.until(lambda: any(key[1] == 0 for key in fetcher._throttled._fetching))
        throttle, clock = throttle_of(cluster, "follower", 3), cluster.brokers[3].clock
        throttle.set_rate(2**63 - 1, clock.monotonic())
        await cluster.until(
            lambda: all(3 in state.isr for state in cluster.controller.states.values())
        )
        throttle.set_rate(RATE // 4, clock.monotonic())
        # Partition 1 falls behind.
        cluster.controller.fence(3)
        cluster.controller.change(1, isr=(1, 2))
        cluster.brokers[3].replication.unfollow(cluster.partition(3, 1))
        for _ in range(10):
            await cluster.produce(*["y" * SIZE] * 4, index=1)
        cluster.controller.fence(3, fenced=False)
        cluster.brokers[3].apply(1)
        end = cluster.partition(1, 1).log_end_offset
        await cluster.until(lambda: cluster.partition(3, 1).log_end_offset == end, within_s=60)

    throttled("follower", main, listed=("*",))
