"""A consumer group in a simulated cluster: members that join, commit, leave and come back, and an
onlooker. They note what they saw."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.consumer.group_consumer import GroupConsumer
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.history import Assigned, CommitBegan, CommitEnded, Event, OffsetsFound
from penstock.sim.cluster.shape import Topic
from penstock.world.sim import Node as Machine

GROUP = "readers"
MEMBERS = 3
_SESSION_S, _HEARTBEAT_S, _REBALANCE_S = 1.5, 0.3, 3.0
_TRY_AGAIN_S = 0.2

Connected = Callable[[Machine], AbstractAsyncContextManager[Client]]


class GroupWorkload:
    """`over` ends members and onlooker; the group is to be whole before."""

    def __init__(
        self,
        topic: Topic,
        note: Callable[[Event], None],
        rng: random.Random,
        connected: Connected,
    ) -> None:
        self._topic = topic
        self._note = note
        self._rng = rng
        self._connected = connected
        self._commits = 0
        self.over = asyncio.Event()

    async def member(self, machine: Machine, name: str) -> None:
        """Again and again: a member that ends, by trouble or by leaving, is followed by the
        next."""
        life = 0
        async with self._connected(machine) as client:
            while not self.over.is_set():
                life += 1
                try:
                    await self._live(machine, client, f"{name}.{life}")
                except KafkaError:
                    await asyncio.sleep(_TRY_AGAIN_S)

    async def _live(self, machine: Machine, client: Client, name: str) -> None:
        now = machine.world.clock.monotonic
        ends_at = now() + self._rng.choice((1.0, 5.0, 60.0))
        generation = -1
        consumer = client.group_consumer(
            GROUP,
            [self._topic.name],
            auto_commit_s=None,
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
                    self._note(Assigned(now(), name, generation, frozenset(consumer.positions)))
                if self._rng.random() < 0.02:
                    await self._freeze(consumer)
                if consumer.positions and consumer.generation >= 0 and self._rng.random() < 0.3:
                    await self._commit(now, client, consumer, name)

    async def _freeze(self, consumer: GroupConsumer) -> None:
        """As a process that was stopped: the group goes on without it, and it does not know."""
        consumer._coordinator._stop_heartbeat()  # no product code would do this
        await asyncio.sleep(_SESSION_S * self._rng.choice((0.5, 2)))

    async def _commit(
        self, now: Callable[[], float], client: Client, consumer: GroupConsumer, name: str
    ) -> None:
        self._commits += 1
        number, offsets = self._commits, dict(consumer.positions)
        self._note(CommitBegan(now(), number, name, consumer.generation, offsets))
        try:
            await client.groups.commit_offsets(
                GROUP,
                {one: OffsetAndMetadata(at) for one, at in offsets.items()},
                consumer.group_metadata,
            )
        except KafkaError as error:
            self._note(CommitEnded(now(), number, error.code.name))
            raise
        self._note(CommitEnded(now(), number, None))

    async def look_on(self, machine: Machine) -> None:
        """What the group has committed, as anybody can ask."""
        now = machine.world.clock.monotonic
        async with self._connected(machine) as client:
            while not self.over.is_set():
                await asyncio.sleep(self._rng.random() * 0.5)
                began = now()
                try:
                    found = await client.groups.fetch_offsets(GROUP, self._topic.all_partitions)
                except KafkaError:
                    continue
                broker = client.groups.coordinators.cached(GROUP)
                self._note(
                    OffsetsFound(
                        now(), began, broker, {one: at.offset for one, at in found.items()}
                    )
                )

    async def wait_settled(self, machine: Machine) -> None:
        """Until every partition has one owner in a stable group."""
        async with self._connected(machine) as client:
            async for owned in self._assignments(client):
                if sorted(owned) == sorted(self._topic.all_partitions):
                    return

    async def _assignments(self, client: Client) -> AsyncIterator[list[TopicPartition]]:
        while True:
            await asyncio.sleep(_TRY_AGAIN_S)
            try:
                group = await client.groups.describe_group(GROUP)
            except KafkaError:
                continue
            if group.state == "Stable":
                yield [partition for member in group.members for partition in member.assignment]
