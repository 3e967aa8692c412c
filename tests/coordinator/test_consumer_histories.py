"""Random histories of consumer groups: members join, leave, fall silent and lose responses, topics
change, coordinators move.

At any time no partition has two owners whose commits the coordinator accepts, and the log replays
to the same group. At the end every partition has one owner, and heartbeats change nothing.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.groups.machine import GroupMachine
from penstock.coordinator.groups.table import GroupSettings, GroupTable
from penstock.coordinator.runtime.step import PLAIN
from penstock.errors import ErrorCode
from tests.coordinator.consumer_world import Consumer, ConsumerWorld, TopicPartitions
from tests.coordinator.group_world import GROUP

TOPICS = ("t", "u", "v")
subscriptions = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda names: tuple(sorted(names)))


class Histories(RuleBasedStateMachine):
    consumers = Bundle("consumers")

    @initialize(interval_ms=st.sampled_from([0, 1_000]))
    def begin(self, interval_ms: int) -> None:
        self.world = ConsumerWorld(
            {"t": 4, "u": 3}, GroupSettings(consumer_assignment_interval_ms=interval_ms)
        )
        self.alive: list[Consumer] = []
        self.all: list[Consumer] = []
        self.names = 0

    @rule(
        target=consumers,
        topics=subscriptions,
        instance=st.sampled_from([None, None, "i"]),
        rack=st.sampled_from([None, "r"]),
    )
    def join(self, topics: tuple[str, ...], instance: str | None, rack: str | None) -> Consumer:
        self.names += 1
        consumer = self.world.consumer(
            f"m{self.names}", *topics, instance=instance, rack=rack, rebalance_ms=20_000
        )
        self.alive.append(consumer)
        self.all.append(consumer)
        consumer.join()
        return consumer

    @rule(consumer=consumers)
    def beat(self, consumer: Consumer) -> None:
        if consumer in self.alive:
            consumer.beat()

    @rule(consumer=consumers)
    def beat_and_lose_the_response(self, consumer: Consumer) -> None:
        if consumer.epoch:
            consumer.beat_and_lose_the_response()

    @rule(consumer=consumers)
    def keep_alive(self, consumer: Consumer) -> None:
        if consumer.epoch and not consumer.lost:
            consumer.take(self.world.send(consumer.idle()))

    @rule(consumer=consumers, topics=subscriptions)
    def subscribe(self, consumer: Consumer, topics: tuple[str, ...]) -> None:
        if consumer.epoch:
            consumer.subscribe(*topics)

    @rule(consumer=consumers, temporarily=st.booleans())
    def leave(self, consumer: Consumer, temporarily: bool) -> None:
        if consumer.epoch:
            consumer.leave(temporarily and consumer.full.instance_id is not None)
            self.fall_silent(consumer)

    @rule(consumer=consumers)
    def fall_silent(self, consumer: Consumer) -> None:
        """Stop a client without leaving; it still believes that it owns its partitions."""
        if consumer in self.alive:
            self.alive.remove(consumer)

    @rule(ms=st.sampled_from([100, 1_000, 5_000, 21_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(t=st.integers(1, 6), u=st.integers(0, 3), v=st.integers(0, 2))
    def change_topics(self, t: int, u: int, v: int) -> None:
        before = {name: len(topic.partitions) for name, topic in self.world.image.topics.items()}
        counts = {"t": t, "u": u, "v": v}
        # Partitions are never removed. A count of 0 deletes the topic; later it has another id.
        self.world.change_topics(
            {name: max(count, before.get(name, 0)) for name, count in counts.items() if count}
        )

    @rule()
    def move_the_coordinator(self) -> None:
        self.world.reload()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.group()
        if group is None:
            return
        owned: dict[tuple[UUID, int], str] = {}
        for consumer in self.all:
            member = group.members.get(consumer.id)
            if (
                member is not None
                and consumer.epoch in (member.epoch, member.previous_epoch)
                and consumer.epoch > 0
            ):
                for partition in consumer.owned:
                    assert partition not in owned, (
                        f"{partition} is owned by {owned[partition]} and {consumer.id}"
                    )
                    owned[partition] = consumer.id

    @invariant()
    def owners_match_the_members(self) -> None:
        group = self.group()
        if group is None:
            return
        owners: dict[UUID, dict[int, str]] = {}
        for member in group.members.values():
            for partitions_by_topic in (member.assigned, member.revoking):
                for topic, partitions in partitions_by_topic.items():
                    for partition in partitions:
                        assert (
                            owners.setdefault(topic, {}).setdefault(partition, member.id)
                            == member.id
                        )
        assert owners == group.owners

    @invariant()
    def the_log_replays_to_the_same_state(self) -> None:
        if self.group() is not None:
            live = durable_state(self.world.machine.groups)
            assert durable_state(self.world.replayed().groups) == live
            assert durable_state(self.compacted().groups) == live

    def compacted(self) -> GroupMachine:
        """Return a machine that replays the log after compaction: the last record of each key."""
        machine = self.world.new_machine()
        last = {key: offset for offset, (key, _) in enumerate(self.world.log)}
        for offset, record in enumerate(self.world.log):
            if last[record.key] == offset:
                machine.replay(record, PLAIN)
        return machine

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for _ in range(14):
            self.world.wait(5_000)
            self.world.settle(self.alive, rounds=2)
        group = self.group()
        if group is None or not self.alive:
            return
        members = [consumer for consumer in self.alive if consumer.error is ErrorCode.NONE]
        assert set(group.members) == {consumer.id for consumer in members}
        expected = {
            (topic.id, partition)
            for topic in self.world.image.topics.values()
            for partition in topic.partitions
            if any(
                topic.name in (consumer.full.subscribed_topic_names or ()) for consumer in members
            )
        }
        have: list[TopicPartitions] = [consumer.owned for consumer in members]
        assert sum(map(len, have)) == len(expected)
        assert frozenset().union(*have) == expected
        log = len(self.world.log)
        for consumer in members:
            assert self.world.send(consumer.short()).error_code == ErrorCode.NONE
            assert self.world.send(consumer.idle()).heartbeat_interval_ms == 5_000
        assert len(self.world.log) == log

    def group(self) -> ConsumerGroup | None:
        group = self.world.machine.groups.by_id.get(GROUP) if hasattr(self, "world") else None
        return group if isinstance(group, ConsumerGroup) else None


def durable_state(groups: GroupTable) -> object:
    group = groups.by_id[GROUP]
    assert isinstance(group, ConsumerGroup)
    counted = group.epoch, group.metadata_hash, group.target_epoch, group.target_at_ms
    return counted, group.members, group.targets, group.regexes, group.static_ids, group.owners


Histories.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase
