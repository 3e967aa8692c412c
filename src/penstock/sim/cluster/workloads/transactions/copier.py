"""Exactly-once copies: consume committed records, produce them to another topic, and commit the
offsets in the same transaction. Copiers die, abort, are fenced and replace each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum

from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.client.producer.producer import Producer
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.history import CopyRoute
from penstock.sim.cluster.spec import CopyKind
from penstock.sim.cluster.transaction_events import CopyOffsetsFetched, ProducerInitialized
from penstock.sim.cluster.workloads.transactions.env import MAX_BLOCK_S, ClientTransaction, TxnEnv
from penstock.sim.cluster.workloads.transactions.members import (
    AssignedMember,
    ClassicMember,
    ConsumerMember,
    CopyMember,
)
from penstock.sim.cluster.workloads.workload import RETRY_S
from penstock.world.sim import Node as Machine


class _Fate(Enum):
    GO_ON = "go on"
    RESTART = "restart"


class Copier:
    """All instances of one transactional id."""

    def __init__(
        self,
        env: TxnEnv,
        transactional_id: str,
        kind: CopyKind,
        route: CopyRoute,
        partitions: list[TopicPartition],
    ) -> None:
        self._env = env
        self._id = transactional_id
        self._kind = kind
        self._route = route
        self._partitions = partitions
        self._rng = env.rng

    async def run(self, machine: Machine) -> None:
        number = 0
        async with asyncio.TaskGroup() as instances:
            while not self._env.over.is_set():
                number += 1
                replaced = asyncio.Event()
                instances.create_task(self._instance(machine, number, replaced))
                await replaced.wait()

    async def _instance(self, machine: Machine, number: int, replaced: asyncio.Event) -> None:
        """Copy until a transaction fails. Set `replaced` when the next instance may begin."""
        env = self._env
        try:
            async with (
                env.connected(machine) as client,
                client.producer(
                    transactional_id=self._id,
                    transaction_timeout_ms=self._rng.choice((1_500, 3_000, 6_000)),
                    max_block_s=MAX_BLOCK_S,
                    delivery_timeout_s=300.0,
                    linger_s=0.002,
                ) as producer,
            ):
                await producer.init_transactions()
                now = machine.world.clock.monotonic
                env.note(
                    ProducerInitialized(now(), self._id, number, *producer.producer_id_and_epoch)
                )
                member = self._member(client, now)
                try:
                    await member.start()
                    await self._copy(machine, producer, member, number, replaced)
                except asyncio.CancelledError:
                    member.abandon()
                    raise
                except KafkaError:
                    await _leave(member)
                    raise
                await _leave(member)
        except KafkaError:
            await asyncio.sleep(RETRY_S)
        finally:
            replaced.set()

    def _member(self, client: Client, now: Callable[[], float]) -> CopyMember:
        group, topic = self._route.group, self._route.source
        match self._kind:
            case CopyKind.CLASSIC:
                return ClassicMember(client, group, topic)
            case CopyKind.CONSUMER:
                member_id = f"{self._rng.getrandbits(64):016x}"
                return ConsumerMember(client, group, topic, member_id, now)
            case CopyKind.ASSIGNED:
                return AssignedMember(client, group, self._partitions)

    async def _copy(
        self,
        machine: Machine,
        producer: Producer,
        member: CopyMember,
        instance: int,
        replaced: asyncio.Event,
    ) -> None:
        number = 0
        while not self._env.over.is_set():
            records = await member.poll()
            if not records:
                continue
            number += 1
            txn = f"{self._id}.{instance}.{number}"
            transaction = ClientTransaction(self._env, machine, producer, txn)
            try:
                fate = await self._copy_records(transaction, producer, member, records, replaced)
            except KafkaError:
                transaction.give_up()
                raise
            if fate is _Fate.RESTART:
                return

    async def _copy_records(
        self,
        transaction: ClientTransaction,
        producer: Producer,
        member: CopyMember,
        records: list[ConsumerRecord],
        replaced: asyncio.Event,
    ) -> _Fate:
        """Copy records in one transaction. After an abort the positions are wrong, and another
        instance begins at the committed offsets."""
        rng = self._rng
        offsets = {
            name: OffsetAndMetadata(member.positions[name])
            for name in dict.fromkeys(
                TopicPartition(each.topic, each.partition) for each in records
            )
        }
        metadata = member.metadata
        transaction.begin()
        for record in records:
            target = TopicPartition(self._route.target, record.partition)
            await transaction.send(target, b"=" + (record.value or b""))
        await self._suffer(replaced)
        await producer.send_offsets_to_transaction(offsets, self._route.group, metadata)
        await self._suffer(replaced)
        commit = rng.random() < 0.9
        await transaction.end(commit=commit)
        if commit:
            self._env.history.count("records copied", len(records))
        return _Fate.GO_ON if commit else _Fate.RESTART

    async def _suffer(self, replaced: asyncio.Event) -> None:
        dice = self._rng.random()
        if dice < 0.03:
            self._env.history.count("copiers that died in a transaction")
            raise asyncio.CancelledError
        if dice < 0.06 and not replaced.is_set():
            self._env.history.count("copiers that became zombies")
            replaced.set()
            await self._env.pause(1.5)
        elif dice < 0.14:
            # Longer than its group waits for it, often.
            self._env.history.count("copiers that stalled in a transaction")
            await asyncio.sleep(self._rng.choice((0.3, 1.0, 2.5)))


async def _leave(member: CopyMember) -> None:
    with contextlib.suppress(KafkaError):
        await member.close()


async def watch_offsets(
    env: TxnEnv, machine: Machine, group: str, partitions: list[TopicPartition]
) -> None:
    """Fetch the committed offsets of the copiers' group again and again."""
    now = machine.world.clock.monotonic
    async with env.connected(machine) as client:
        while not env.over.is_set():
            await env.pause(0.5)
            started = now()
            try:
                committed = await client.groups.fetch_offsets(group, partitions)
            except KafkaError:
                continue
            broker = client.groups.coordinators.cached(group)
            offsets = {name: entry.offset for name, entry in committed.items()}
            env.note(CopyOffsetsFetched(now(), group, started, broker, offsets))
