"""Replication throttles: rates, and the replicas that they apply to (KIP-73)."""

from __future__ import annotations

import pytest

from penstock.config.topic import LogConfig
from penstock.ids import TopicPartition
from penstock.replica.throttle import UNLIMITED, ReplicaThrottle, ReplicationQuota

RATE = 1_000
PARTITION = TopicPartition("t", 3)


def quota(rate: int = RATE) -> ReplicationQuota:
    made = ReplicationQuota()
    made.set_rate(rate, 0.0)
    return made


def test_without_a_rate_nothing_is_exceeded() -> None:
    made = ReplicationQuota()
    assert not made.is_set
    made.record(2**40, 1.0)
    assert not made.is_exceeded(1.0)
    assert made.wait_s(1.0) == 0.0
    made.set_rate(UNLIMITED, 2.0)
    assert not made.is_set


def test_a_second_s_worth_may_be_copied_at_once() -> None:
    made = quota()
    made.record(RATE - 1, 0.0)
    assert not made.is_exceeded(0.0)
    made.record(1, 0.0)
    assert made.is_exceeded(0.0)
    assert not made.is_exceeded(0.001)


def test_what_was_copied_too_much_is_waited_for() -> None:
    made = quota()
    assert made.recorded_wait_s(3 * RATE, 0.0) == 2.0
    assert made.is_exceeded(1.99)
    assert not made.is_exceeded(2.01)


def test_the_rate_holds_on_average_whatever_the_sizes_are() -> None:
    made, now, copied = quota(), 0.0, 0
    for size in (700, 2_500, 10, 4_000, 1) * 40:
        now += made.wait_s(now) + 1e-9
        assert not made.is_exceeded(now)
        made.record(size, now)
        copied += size
    assert copied / (now + 1) == pytest.approx(RATE, rel=0.05)


def test_idle_time_is_not_saved_up() -> None:
    made = quota()
    made.record(0, 0.0)
    made.record(RATE, 1_000.0)
    assert made.is_exceeded(1_000.0)


def test_one_large_batch_does_not_stop_a_slow_copy_for_longer_than_kafka_s_window() -> None:
    assert quota(1).recorded_wait_s(1_000_000, 0.0) == 11.0


def test_another_rate_forgives_what_was_owed() -> None:
    made = quota()
    made.record(5 * RATE, 0.0)
    made.set_rate(RATE, 0.0)
    assert made.is_exceeded(0.0), "the same rate changes nothing"
    made.set_rate(2 * RATE, 0.0)
    assert not made.is_exceeded(0.0)
    made.record(5 * RATE, 0.0)
    made.set_rate(UNLIMITED, 0.0)
    assert not made.is_exceeded(0.0)


def test_a_rate_of_zero_lets_nothing_pass() -> None:
    made = quota(0)
    assert made.is_exceeded(1e6)
    assert made.wait_s(1e6) > 0


@pytest.mark.parametrize(
    ("listed", "applies"),
    [
        ((), False),
        (("*",), True),
        ((" * ",), True),
        (("3:1",), True),
        (("3:2", "1:1"), False),
        (("0:0", " 3:1 "), True),
        (("13:1", "3:11"), False),
    ],
)
@pytest.mark.parametrize("is_leader", [False, True])
def test_it_applies_to_the_replicas_of_this_broker_that_the_topic_lists(
    listed: tuple[str, ...], applies: bool, is_leader: bool
) -> None:
    throttle = ReplicaThrottle(is_leader=is_leader)
    config = LogConfig(
        leader_replication_throttled_replicas=listed if is_leader else (),
        follower_replication_throttled_replicas=() if is_leader else listed,
    )
    assert throttle.applies(PARTITION, config, 1) is applies
    assert throttle.applies(PARTITION, config, 1) is applies
    # Other configs of the topic replace the list.
    assert not throttle.applies(PARTITION, LogConfig(), 1)
    other = ReplicaThrottle(is_leader=not is_leader)
    assert not other.applies(PARTITION, config, 1)
