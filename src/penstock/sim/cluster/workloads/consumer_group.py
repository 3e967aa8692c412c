"""A consumer group with the consumer protocol (KIP-848): dynamic and static members that join, own
partitions, commit, freeze, leave and come back.

The client has no such consumer yet, so the members send ConsumerGroupHeartbeat themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from penstock.client.admin.groups import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.sim.cluster.events import (
    CONSUMER_GROUP,
    HeartbeatAnswered,
    MemberAssigned,
    OffsetCommitFinished,
    OffsetCommitStarted,
    OffsetsFetched,
)
from penstock.sim.cluster.workloads.workload import RETRY_S, Clients, Workload, WorkloadEnv
from penstock.world.sim import Node as Machine

MEMBERS = 3
# As group.consumer.session.timeout.ms and group.consumer.heartbeat.interval.ms of the nodes.
SESSION_S, HEARTBEAT_S = 1.5, 0.2
# Longer than a run: no member is expelled because it revoked too late.
_REBALANCE_S = 600.0
_JOIN, _LEAVE, _LEAVE_STATIC = 0, -1, -2
# Numbers of OffsetCommitStarted events. The classic group counts from one.
_FIRST_COMMIT = 1_000_000

_Owned = ConsumerGroupHeartbeatRequest.TopicPartition


@dataclass(slots=True)
class _Member:
    """`name` is unique per incarnation of a dynamic member, and the instance id of a static one."""

    name: str
    id: str
    instance_id: str | None
    epoch: int = _JOIN
    owned: dict[UUID, tuple[int, ...]] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    # The next heartbeat repeats everything: the last one failed, or the assignment changed.
    is_full: bool = True

    def heartbeat(self, topics: tuple[str, ...]) -> ConsumerGroupHeartbeatRequest:
        is_full = self.is_full or self.epoch == _JOIN
        owned = tuple(
            _Owned(topic_id=topic, partitions=indexes) for topic, indexes in self.owned.items()
        )
        return ConsumerGroupHeartbeatRequest(
            group_id=CONSUMER_GROUP,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=int(_REBALANCE_S * 1000) if is_full else -1,
            subscribed_topic_names=topics if is_full else None,
            topic_partitions=owned if is_full else None,
        )

    def forget(self) -> None:
        """Begin again: the group has expelled this member."""
        self.epoch, self.owned, self.is_full = _JOIN, {}, True
        self.positions.clear()


class ConsumerGroupWorkload(Workload):
    """The group subscribes to the first topic, which always exists, and to another one that may be
    deleted and created again."""

    def __init__(self, env: WorkloadEnv, other_topic: str | None) -> None:
        super().__init__(env)
        first = env.spec.topics[0].name
        self._topics = (first,) if other_topic is None else (first, other_topic)
        self._watched = env.spec.topics[0].all_partitions
        self._commits = _FIRST_COMMIT
        self._static = env.rng.random() < 0.5

    def clients(self, first: Machine, second: Machine) -> Clients:
        machines = [(first, second)[number % 2] for number in range(MEMBERS)]
        members = [
            (machine, self.run_member(machine, f"consumer{number}"))
            for number, machine in enumerate(machines)
        ]
        return [*members, (second, self.watch_offsets(second))]

    async def run_member(self, machine: Machine, name: str) -> None:
        """Run one member after the other. A static member returns under its instance id."""
        instance = name if self._static else None
        number = 0
        async with self.env.connected(machine) as client:
            while not self.over.is_set():
                number += 1
                member = _Member(
                    instance or f"{name}.{number}", self._new_id(), instance_id=instance
                )
                await self._live(machine, client, member)

    def _new_id(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    async def _live(self, machine: Machine, client: Client, member: _Member) -> None:
        now = machine.world.clock.monotonic
        ends_at = now() + self.rng.choice((2.0, 6.0, 60.0))
        while not self.over.is_set() and now() < ends_at:
            if not await self._heartbeat(now, client, member):
                return
            if self.rng.random() < 0.3:
                await self._commit(now, client, member)
            if self.rng.random() < 0.02:
                # The group may expel the member without its knowledge.
                await asyncio.sleep(SESSION_S * 2)
                await self._commit(now, client, member)
            await asyncio.sleep(HEARTBEAT_S)
        if self.rng.random() < 0.7:
            has_joined = member.epoch > _JOIN
            member.epoch = _LEAVE if member.instance_id is None else _LEAVE_STATIC
            await self._heartbeat(now, client, member, has_joined=has_joined)

    # Heartbeats

    async def _heartbeat(
        self,
        now: Callable[[], float],
        client: Client,
        member: _Member,
        *,
        has_joined: bool | None = None,
    ) -> bool:
        """Send a heartbeat and follow the answer. Return False if this member must not go on."""
        request, sent = member.heartbeat(self._topics), now()
        joined = member.epoch > _JOIN if has_joined is None else has_joined

        async def send(connection: Connection) -> ConsumerGroupHeartbeatResponse:
            response = await connection.call(request, ConsumerGroupHeartbeatResponse)
            broker = client.groups.coordinators.cached(CONSUMER_GROUP)
            error = None if response.error_code == 0 else ErrorCode(response.error_code).name
            self.note(HeartbeatAnswered(now(), member.name, sent, broker, error, joined))
            check(response.error_code, response.error_message or "the heartbeat was refused")
            return response

        try:
            response = await client.groups.coordinators.send_once(CONSUMER_GROUP, send)
        except KafkaError as error:
            if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self.history.count("members expelled")
                member.forget()
            member.is_full = True
            return error.code is not ErrorCode.FENCED_INSTANCE_ID
        member.is_full = False
        if response.member_epoch > 0 and member.epoch >= 0:
            await self._follow(now, client, member, response)
        return True

    async def _follow(
        self,
        now: Callable[[], float],
        client: Client,
        member: _Member,
        response: ConsumerGroupHeartbeatResponse,
    ) -> None:
        """Take over the assignment. Partitions that are no longer assigned are revoked now, and
        the next heartbeat says so."""
        changed = response.member_epoch != member.epoch
        if response.assignment is not None:
            assigned = {
                topic.topic_id: tuple(topic.partitions)
                for topic in response.assignment.topic_partitions
            }
            if any(
                index not in assigned.get(topic, ())
                for topic, indexes in member.owned.items()
                for index in indexes
            ):
                # As consumers do before they revoke partitions.
                await self._commit(now, client, member)
            changed |= assigned != member.owned
            member.is_full = assigned != member.owned
            member.owned = assigned
        member.epoch = response.member_epoch
        if not changed:
            return
        self.history.count("KIP-848 assignments")
        owned = await self._names_of(client, member)
        self.note(
            MemberAssigned(now(), member.name, member.epoch, frozenset(owned), CONSUMER_GROUP)
        )
        await self._start_positions(client, member, owned)

    async def _names_of(self, client: Client, member: _Member) -> list[TopicPartition]:
        """Return the owned partitions of the first topic. The other one may be deleted any
        time."""
        try:
            topic = await client.cluster.topic(self._topics[0])
        except KafkaError:
            return []
        return [TopicPartition(topic.name, index) for index in member.owned.get(topic.id, ())]

    async def _start_positions(
        self, client: Client, member: _Member, owned: list[TopicPartition]
    ) -> None:
        """Continue new partitions at their committed offsets. On an error they have no position,
        and nothing is committed for them."""
        kept = {name: offset for name, offset in member.positions.items() if name in owned}
        member.positions = kept
        added = [name for name in owned if name not in kept]
        if not added:
            return
        try:
            committed = await client.groups.fetch_offsets(CONSUMER_GROUP, added)
        except KafkaError:
            return
        for name in added:
            member.positions[name] = committed[name].offset if name in committed else 0

    # Offsets

    async def _commit(self, now: Callable[[], float], client: Client, member: _Member) -> None:
        """Commit larger offsets than before. The coordinator does not compare them with the log."""
        if not member.positions:
            return
        for name in member.positions:
            member.positions[name] += self.rng.randrange(1, 5)
        self._commits += 1
        number, offsets = self._commits, dict(member.positions)
        self.note(
            OffsetCommitStarted(now(), number, member.name, member.epoch, offsets, CONSUMER_GROUP)
        )
        commits = {name: OffsetAndMetadata(offset) for name, offset in offsets.items()}
        identity = ConsumerGroupMetadata(member.id, member.epoch, member.instance_id)
        try:
            await client.groups.commit_offsets(CONSUMER_GROUP, commits, identity)
        except KafkaError as error:
            self.note(OffsetCommitFinished(now(), number, error.code.name))
        else:
            self.note(OffsetCommitFinished(now(), number, None))

    async def watch_offsets(self, machine: Machine) -> None:
        """Fetch the group's committed offsets again and again, without being a member."""
        now = machine.world.clock.monotonic
        async with self.env.connected(machine) as client:
            while not self.over.is_set():
                await asyncio.sleep(self.rng.random() * 0.5)
                started = now()
                try:
                    committed = await client.groups.fetch_offsets(CONSUMER_GROUP, self._watched)
                except KafkaError:
                    continue
                broker = client.groups.coordinators.cached(CONSUMER_GROUP)
                offsets = {name: entry.offset for name, entry in committed.items()}
                self.note(OffsetsFetched(now(), started, broker, offsets, CONSUMER_GROUP))

    async def settle(self, machine: Machine) -> None:
        """Wait until the group is stable, and every partition that exists has one owner."""
        async with self.env.connected(machine) as client:
            while True:
                await asyncio.sleep(RETRY_S)
                try:
                    group = await client.groups.describe_group(CONSUMER_GROUP)
                    topics = await client.cluster.topics(None)
                except KafkaError:
                    continue
                expected = [
                    TopicPartition(topic.name, partition.index)
                    for topic in topics
                    if topic.name in self._topics
                    for partition in topic.partitions
                ]
                owned = [name for member in group.members for name in member.assignment]
                if group.state == "Stable" and sorted(owned) == sorted(expected):
                    self.history.count("KIP-848 groups settled")
                    return
