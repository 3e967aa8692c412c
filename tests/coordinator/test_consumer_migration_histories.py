"""Random histories of a group with members of both protocols, which is upgraded and downgraded as
they join and leave."""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.groups.table import GroupSettings
from penstock.errors import KafkaError
from tests.coordinator.classic_client import ClassicConsumer, kind
from tests.coordinator.consumer_world import Consumer, ConsumerWorld
from tests.coordinator.group_world import GROUP

Member = ClassicConsumer | Consumer


class Migrations(RuleBasedStateMachine):
    members = Bundle("members")

    @initialize(interval_ms=st.sampled_from([0, 1_000]), eager=st.booleans())
    def begin(self, interval_ms: int, eager: bool) -> None:
        self.eager = eager
        self.world = ConsumerWorld(
            {"t": 5}, GroupSettings(consumer_assignment_interval_ms=interval_ms)
        )
        self.alive: list[Member] = []
        self.all: list[Member] = []
        self.names = 0
        for _ in range(2):
            self.a_classic_member_joins()
        self.settle()

    @rule(target=members)
    def a_classic_member_joins(self) -> Member:
        self.names += 1
        return self._start(ClassicConsumer(self.world, f"c{self.names}", eager=self.eager))

    @rule(target=members)
    def a_consumer_member_joins(self) -> Member:
        self.names += 1
        return self._start(self.world.consumer(f"n{self.names}"))

    @rule()
    def all_consumer_members_leave(self) -> None:
        for member in [member for member in self.alive if isinstance(member, Consumer)]:
            self.leave(member)

    def _start(self, member: Member) -> Member:
        self.alive.append(member)
        self.all.append(member)
        step(member)
        return member

    @rule(member=members)
    def act(self, member: Member) -> None:
        if member in self.alive:
            step(member)

    @rule()
    def settle(self) -> None:
        for _ in range(4):
            self.world.wait(2_000)
            for member in self.alive:
                step(member)

    @rule(member=members)
    def leave(self, member: Member) -> None:
        is_in = member.epoch > 0 if isinstance(member, Consumer) else bool(member.id)
        if member in self.alive and is_in:
            member.leave()
            self.alive.remove(member)

    @rule(member=members)
    def fall_silent(self, member: Member) -> None:
        if member in self.alive:
            self.alive.remove(member)

    @rule(ms=st.sampled_from([100, 1_000, 4_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule()
    def move_the_coordinator(self) -> None:
        self.world.reload()

    @rule(count=st.integers(5, 8))
    def grow(self, count: int) -> None:
        self.world.change_topics({"t": max(count, len(self.world.image.topics["t"].partitions))})

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned: dict[tuple[UUID, int], str] = {}
        for member in self.all:
            if self.may_commit(member):
                for partition in member.owned:
                    assert partition not in owned, (
                        f"{partition} is owned by {owned[partition]} and {member.id}"
                    )
                    owned[partition] = member.id

    def may_commit(self, member: Member) -> bool:
        group = self.world.machine.groups.by_id.get(GROUP)
        epoch = member.epoch if isinstance(member, Consumer) else member.generation
        if group is None or group.is_empty:
            return False
        try:
            group.check_commit(member.id, None, epoch, 9)
        except KafkaError:
            return False
        return True

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for _ in range(40):
            self.world.wait(2_500)
            for member in self.alive:
                step(member)
                step(member)
        if not self.alive:
            return
        speaks_new = any(isinstance(member, Consumer) for member in self.alive)
        assert kind(self.world) == ("consumer" if speaks_new else "classic")
        assert self.world.machine.groups.by_id[GROUP].state_name == "Stable"
        if speaks_new:
            have = [partition for member in self.alive for partition in member.owned]
            (topic,) = self.world.image.topics.values()
            assert sorted(have) == [(topic.id, partition) for partition in sorted(topic.partitions)]


def step(member: Member) -> None:
    if isinstance(member, ClassicConsumer):
        member.run()
    else:
        member.beat()


Migrations.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestMigrations = Migrations.TestCase
