"""Large groups: a request of one member does not look at all the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Never

import pytest

from penstock.coordinator.groups.table import GroupSettings
from penstock.coordinator.runtime.step import Step
from tests.coordinator.consumer_world import ConsumerWorld
from tests.coordinator.group_world import World


class Unlisted(dict[str, Any]):
    """A dictionary that must not be gone through or copied."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a request went through all members")

    keys = values = items = copy = __iter__  # type: ignore[assignment]


class DirectWorld(ConsumerWorld):
    """Does not compare the state before and after each step, which would go through it."""

    def run(self, decide: Any) -> Step[Never]:
        return self.take(decide())


def test_requests_of_consumer_group_members_do_not_look_at_all_members() -> None:
    """Except for one in every assignment interval, which computes the target assignment."""
    world = DirectWorld({"t": 12}, GroupSettings(consumer_assignment_interval_ms=1_000))
    members = [world.consumer(f"m{number}") for number in range(6)]
    for member in members:
        member.join()
    world.wait(1_500)
    members[0].beat()
    group = world.consumers
    group.members = Unlisted(group.members)
    for _ in range(4):
        for member in members:
            member.beat()
    assert group.is_settled
    world.consumer("another").join()
    members[0].subscribe("t", "u")
    assert world.commit(5, "m1", members[1].epoch, version=9) == 0
    world.wait(500)
    assert len(group.members) == 7


def test_a_classic_member_that_joins_does_not_look_at_all_members() -> None:
    world = World(replace(GroupSettings(), initial_rebalance_delay_ms=0))
    first, second, third = world.stable_group("a", "b", "c")
    group = world.group
    world.join(second, protocols={"range": b"other"})
    counted = group.joining_count, group.have_all_joined, group.supports("consumer", ["range"])
    assert counted == (1, False, True)
    group.members = Unlisted(group.members)
    counted = group.joining_count, group.have_all_joined, group.supports("consumer", ["range"])
    assert counted == (1, False, True)
    assert (first in group.members, third in group.members) == (True, True)


def test_a_loaded_machine_starts_the_deadlines_of_its_groups_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.coordinator.groups.machine.LOADED_MEMBERS_PER_STEP", 4)
    world = World()
    world.stable_group("a", "b")
    for number in range(11):
        world.commit(5, group=f"g{number}")
    world.machine = world.replayed()
    world.take(world.machine.loaded(world.now))
    steps = 1
    while world.machine.next_deadline_ms() == world.now_ms:
        world.take(world.machine.run_due(world.now))
        steps += 1
    assert steps == 3, "11 groups without members, and one with two"
    assert world.machine.groups.deadlines.next_ms() == world.now_ms + 10_000
    world.wait(10_000)
    assert world.group.state_name == "Empty"
