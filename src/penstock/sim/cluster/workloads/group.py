"""A consumer group: members that join, commit, freeze, leave and come back, and a bystander that
reads the committed offsets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from penstock.client.admin.groups import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.consumer.group_consumer import GroupConsumer
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.events import (
    CLASSIC_GROUP,
    Event,
    MemberAssigned,
    OffsetCommitFinished,
    OffsetCommitStarted,
    OffsetsFetched,
    ReplacedMemberCommitted,
)
from penstock.sim.cluster.spec import TopicSpec
from penstock.world.sim import Node as Machine

GROUP = CLASSIC_GROUP
MEMBERS = 3
_SESSION_S, _HEARTBEAT_S, _REBALANCE_S = 1.5, 0.3, 3.0
_RETRY_S = 0.2

Connected = Callable[[Machine], AbstractAsyncContextManager[Client]]


class GroupWorkload:
    """Members and bystander work until `over` is set. `connected` connects a client. Members that
    are `static` (KIP-345) do not leave the group when they end; the next one takes over."""

    def __init__(
        self,
        topic: TopicSpec,
        note: Callable[[Event], None],
        rng: random.Random,
        connected: Connected,
        *,
        static: bool = False,
    ) -> None:
        self._topic = topic
        self._note = note
        self._rng = rng
        self._connected = connected
        self._static = static
        self._commits = 0
        # The last member that each static member joined as.
        self._identities: dict[str, ConsumerGroupMetadata] = {}
        self.over = asyncio.Event()

    async def run_member(self, machine: Machine, name: str) -> None:
        """Run one member after the other. Each ends by leaving or by an error."""
        number = 0
        async with self._connected(machine) as client:
            while not self.over.is_set():
                number += 1
                try:
                    if self._static:
                        await self._consume(machine, client, name, instance_id=name)
                    else:
                        await self._consume(machine, client, f"{name}.{number}")
                except KafkaError:
                    await asyncio.sleep(_RETRY_S)

    async def _consume(
        self, machine: Machine, client: Client, name: str, *, instance_id: str | None = None
    ) -> None:
        now = machine.world.clock.monotonic
        ends_at = now() + self._rng.choice((1.0, 5.0, 60.0))
        generation = -1
        consumer = client.group_consumer(
            GROUP,
            [self._topic.name],
            auto_commit_s=None,
            instance_id=instance_id,
            session_timeout_s=_SESSION_S,
            rebalance_timeout_s=_REBALANCE_S,
            heartbeat_interval_s=_HEARTBEAT_S,
            max_wait_s=0.1,
        )
        async with consumer:
            while not self.over.is_set() and now() < ends_at:
                await consumer.poll()
                if consumer.generation != generation:
                    generation = consumer.generation
                    self._note(
                        MemberAssigned(now(), name, generation, frozenset(consumer.positions))
                    )
                    await self._commit_as_replaced(now, client, name, consumer)
                if self._rng.random() < 0.02:
                    await self._freeze(consumer)
                if consumer.positions and consumer.generation >= 0 and self._rng.random() < 0.3:
                    await self._commit(now, client, consumer, name)

    async def _freeze(self, consumer: GroupConsumer) -> None:
        """Stop the heartbeats for a while, as a stopped process does. The group may expel the
        member without its knowledge."""
        consumer._coordinator._stop_heartbeat()  # no product code would do this
        await asyncio.sleep(_SESSION_S * self._rng.choice((0.5, 2)))

    async def _commit(
        self, now: Callable[[], float], client: Client, consumer: GroupConsumer, name: str
    ) -> None:
        self._commits += 1
        number, offsets = self._commits, dict(consumer.positions)
        self._note(OffsetCommitStarted(now(), number, name, consumer.generation, offsets))
        commits = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        try:
            await client.groups.commit_offsets(GROUP, commits, consumer.group_metadata)
        except KafkaError as error:
            self._note(OffsetCommitFinished(now(), number, error.code.name))
            raise
        self._note(OffsetCommitFinished(now(), number, None))

    async def _commit_as_replaced(
        self, now: Callable[[], float], client: Client, name: str, consumer: GroupConsumer
    ) -> None:
        """Commit with the identity of the member that this static member has replaced."""
        replaced, current = self._identities.get(name), consumer.group_metadata
        if not current.member_id:
            return  # it has to join again: nothing has replaced its last identity yet
        self._identities[name] = current
        if (
            replaced is None
            or current.instance_id is None
            or replaced.member_id == current.member_id
            or not consumer.positions
        ):
            return
        offsets = dict.fromkeys(consumer.positions, OffsetAndMetadata(0))
        try:
            await client.groups.commit_offsets(GROUP, offsets, replaced)
        except KafkaError as error:
            self._note(ReplacedMemberCommitted(now(), name, error.code.name))
        else:
            self._note(ReplacedMemberCommitted(now(), name, None))

    async def watch_offsets(self, machine: Machine) -> None:
        """Fetch the group's committed offsets again and again, without being a member."""
        now = machine.world.clock.monotonic
        async with self._connected(machine) as client:
            while not self.over.is_set():
                await asyncio.sleep(self._rng.random() * 0.5)
                started = now()
                try:
                    committed = await client.groups.fetch_offsets(GROUP, self._topic.all_partitions)
                except KafkaError:
                    continue
                broker = client.groups.coordinators.cached(GROUP)
                offsets = {partition: entry.offset for partition, entry in committed.items()}
                self._note(OffsetsFetched(now(), started, broker, offsets))

    async def wait_settled(self, machine: Machine) -> None:
        """Wait until the group is stable and every partition has one owner."""
        async with self._connected(machine) as client:
            async for owned in self._assignments(client):
                if sorted(owned) == sorted(self._topic.all_partitions):
                    return

    async def _assignments(self, client: Client) -> AsyncIterator[list[TopicPartition]]:
        """Yield the assigned partitions of all members whenever the group is stable."""
        while True:
            await asyncio.sleep(_RETRY_S)
            try:
                group = await client.groups.describe_group(GROUP)
            except KafkaError:
                continue
            if group.state == "Stable":
                yield [partition for member in group.members for partition in member.assignment]
