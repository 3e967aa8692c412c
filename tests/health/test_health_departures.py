"""The log line for the partitions that a broker leaves in one change."""

from __future__ import annotations

from functools import partial

from penstock.health.departures import Departures
from penstock.health.observations import Broker, Observation, Partition, Replica
from penstock.ids import TopicPartition
from tests.health.healthy import NOW_MS

BROKERS = {each: Broker(each, fenced=each == 3) for each in (1, 2, 3)}


def described(name: TopicPartition, leader: int, isr: tuple[int, ...]) -> Partition:
    progress = Replica(
        last_fetch_ms=NOW_MS - 7_000, leader_fetch_ms=NOW_MS - 200 if leader == 1 else None, lag=12
    )
    return Partition(name, leader, (1, 2, 3), isr, progress={2: progress})


def line(*partitions: tuple[int, int, int]) -> str:
    """Return the line of broker 2, for leaders, in-sync replicas and min.insync.replicas."""
    departures = Departures(2)
    for index, (leader, in_sync, min_insync) in enumerate(partitions):
        name, isr = TopicPartition("payments", index), (1, 3)[:in_sync]
        departures.add(name, leader, in_sync, min_insync, partial(described, name, leader, isr))
    return departures.line(Observation(NOW_MS, brokers=BROKERS))


def test_one_partition() -> None:
    assert line((1, 2, 1)) == (
        "broker 2 left the in-sync replicas of payments-0: broker 2 has not fetched this "
        "partition, but others, for 7 s"
    )


def test_the_worst_partition_gives_the_causes() -> None:
    text = line(*[(1, 2, 1)] * 400, (1, 1, 2), (3, 2, 2), (-1, 0, 2), (1, 1, 2))
    assert text == (
        "broker 2 left the in-sync replicas of payments-402, payments-400, payments-0 and 401 "
        "more: 1 of them are without a leader; 2 of them are below min.insync.replicas; 1 of them "
        "are at min.insync.replicas; broker 1 runs, but does not keep up with the leader "
        "(replica.lag.time.max.ms); broker 2 has not fetched for 7 s; the controller has fenced "
        "broker 3. To do: check the load, the disk and the network of broker 1"
    )


def test_a_follower_that_fetches_and_is_behind() -> None:
    departures, name = Departures(2), TopicPartition("payments", 0)
    progress = Replica(last_fetch_ms=NOW_MS - 90, leader_fetch_ms=NOW_MS - 90, lag=1_200)
    partition = Partition(name, 1, (1, 2, 3), (1,), progress={2: progress})
    departures.add(name, 1, 1, 2, lambda: partition)
    assert departures.line(Observation(NOW_MS, brokers=BROKERS)) == (
        "broker 2 left the in-sync replicas of payments-0: writes with acks=all are refused; "
        "broker 2 fetches, but is 1,200 offsets behind the leader; the controller has fenced "
        "broker 3"
    )


def test_no_departures_are_false() -> None:
    assert not Departures(2)
