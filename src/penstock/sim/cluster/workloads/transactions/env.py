"""What the transactional clients of a run share: their topics, and the events that they note."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.client.producer.accumulator import RecordMetadata
from penstock.client.producer.producer import Producer
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.events import Event
from penstock.sim.cluster.history import History
from penstock.sim.cluster.spec import ClusterSpec, TransactionSpec
from penstock.sim.cluster.transaction_events import (
    EndFinished,
    EndStarted,
    TransactionalSend,
    TransactionalSendAcknowledged,
    TransactionBegun,
)
from penstock.sim.cluster.workloads.workload import Connected
from penstock.world.sim import Node as Machine

# Two topics that producers write to, and one that copiers write to.
LEFT, RIGHT, COPY = "left", "right", "copy"
# How long the requests of a producer to its coordinator are retried.
MAX_BLOCK_S = 15.0


@dataclass(frozen=True, slots=True)
class TxnEnv:
    """`written` are the partitions that producers write to."""

    cluster: ClusterSpec
    spec: TransactionSpec
    history: History
    rng: random.Random
    connected: Connected
    over: asyncio.Event
    written: tuple[TopicPartition, ...]

    def note(self, event: Event) -> None:
        self.history.events.append(event)

    def some_partitions(self) -> list[TopicPartition]:
        """Draw the partitions of one transaction."""
        return self.rng.sample(self.written, self.rng.randrange(1, len(self.written) + 1))

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(self.rng.random() * seconds)


class ClientTransaction:
    """One transaction of our client, which notes what happens to it."""

    def __init__(self, env: TxnEnv, machine: Machine, producer: Producer, txn: str) -> None:
        self.txn = txn
        self._env = env
        self._now: Callable[[], float] = machine.world.clock.monotonic
        self._producer = producer
        self._sent = 0

    def begin(self) -> None:
        self._producer.begin_transaction()
        self._env.note(
            TransactionBegun(
                self._now(),
                self.txn,
                *self._producer.producer_id_and_epoch,
                self._producer.transactions.is_v2,
            )
        )

    async def send(self, partition: TopicPartition, suffix: bytes = b"") -> None:
        env, now, txn = self._env, self._now, self.txn
        self._sent += 1
        value = f"{txn}:{self._sent}".encode() + suffix
        at = now()
        future = await self._producer.send(partition.topic, value, partition=partition.partition)
        env.note(TransactionalSend(at, txn, partition, value))

        def delivered(delivery: asyncio.Future[RecordMetadata]) -> None:
            if not delivery.cancelled() and delivery.exception() is None:
                offset = delivery.result().offset
                env.note(TransactionalSendAcknowledged(now(), txn, partition, value, offset))

        future.add_done_callback(delivered)

    def give_up(self) -> None:
        """Note that the producer is closed, which may abort the transaction."""
        self._env.note(EndStarted(self._now(), self.txn, commit=False))

    async def end(self, *, commit: bool) -> None:
        """Commit or abort. An end that times out is repeated, because it may have happened."""
        env, producer = self._env, self._producer
        env.note(EndStarted(self._now(), self.txn, commit))
        try:
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        except KafkaError as error:
            env.note(EndFinished(self._now(), self.txn, commit, error.code.name))
            raise
        env.note(EndFinished(self._now(), self.txn, commit, None))
        env.history.count("transactions committed" if commit else "transactions aborted")
