"""Static members of consumer groups leave temporarily and return without a rebalance."""

from __future__ import annotations

from penstock.errors import ErrorCode
from tests.coordinator.consumer_world import ConsumerWorld


def test_a_static_member_that_has_not_left_is_not_replaced() -> None:
    world = ConsumerWorld()
    a = world.consumer("a", instance="i").join()
    assert world.consumer("b", instance="i").join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert a.beat() is ErrorCode.NONE


def test_a_static_member_returns_without_a_rebalance() -> None:
    world = ConsumerWorld()
    a, other = world.consumer("a", instance="i").join(), world.consumer("x").join()
    world.settle([a, other])
    had, epoch = a.owned, world.consumers.epoch
    assert a.leave(temporarily=True) is ErrorCode.NONE
    other.beat()
    b = world.consumer("b", instance="i").join()
    assert (b.owned, b.epoch, world.consumers.epoch) == (had, epoch, epoch)
    assert list(world.consumers.members) == ["x", "b"]
    assert a.beat() is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_replaced_static_member_is_fenced() -> None:
    world = ConsumerWorld()
    a = world.consumer("a", instance="i").join()
    before = a.short()
    a.leave(temporarily=True)
    world.consumer("b", instance="i").join()
    assert world.send(before).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_removed() -> None:
    world = ConsumerWorld()
    a, other = world.consumer("a", instance="i").join(), world.consumer("x").join()
    world.settle([a, other])
    a.leave(temporarily=True)
    world.wait(30_000)
    other.beat()
    world.wait(15_000)
    world.settle([other])
    assert len(other.owned) == 6


def test_a_static_member_may_leave_permanently() -> None:
    world = ConsumerWorld()
    a = world.consumer("a", instance="i").join()
    assert a.leave() is ErrorCode.NONE
    assert world.consumers.static_ids == {}


def test_partitions_to_revoke_are_free_once_the_static_member_left() -> None:
    world = ConsumerWorld()
    a, b = world.consumer("a", instance="i").join(), world.consumer("b").join()
    a.beat()
    assert world.consumers.members["a"].revoking
    a.leave(temporarily=True)
    b.beat()
    assert len(b.owned) == 3
    a.join()
    assert len(a.owned) == 3
