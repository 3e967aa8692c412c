"""A producer whose transactions an external coordinator commits (KIP-939).

The external coordinator stores the decision to commit a prepared transaction. Whatever dies then,
the next instance completes the transaction as it was decided.
"""

from __future__ import annotations

import asyncio

from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.producer import Producer
from penstock.client.producer.transaction_state import AbortableTransactionError
from penstock.errors import KafkaError
from penstock.sim.cluster.transaction_events import (
    EndFinished,
    EndStarted,
    ProducerInitialized,
    TransactionDecided,
)
from penstock.sim.cluster.workloads.transactions.env import MAX_BLOCK_S, ClientTransaction, TxnEnv
from penstock.sim.cluster.workloads.workload import RETRY_S
from penstock.world.sim import Node as Machine


class TwoPhaseProducer:
    """All instances of one transactional id."""

    def __init__(self, env: TxnEnv, transactional_id: str) -> None:
        self._env = env
        self._id = transactional_id
        self._rng = env.rng
        # What the external coordinator has stored: the transaction that is to be committed. And the
        # last transaction, which a client knows only while it lives.
        self._decided: ProducerIdAndEpoch = NO_PRODUCER
        self._last = ""
        self._is_settled = True

    async def run(self, machine: Machine) -> None:
        """Run one instance after the other until the run is over and nothing is left to
        complete: such transactions have no timeout."""
        number = 0
        async with asyncio.TaskGroup() as instances:
            while not self._env.over.is_set() or not self._is_settled:
                number += 1
                await asyncio.wait([instances.create_task(self._instance(machine, number))])

    async def _instance(self, machine: Machine, number: int) -> None:
        env = self._env
        try:
            async with (
                env.connected(machine) as client,
                client.producer(
                    transactional_id=self._id,
                    two_phase_commit=True,
                    max_block_s=MAX_BLOCK_S,
                    linger_s=0.002,
                    delivery_timeout_s=300.0,
                ) as producer,
            ):
                now = machine.world.clock.monotonic
                prepared = await producer.init_transactions(keep_prepared_transaction=True)
                env.note(
                    ProducerInitialized(now(), self._id, number, *producer.producer_id_and_epoch)
                )
                if prepared != NO_PRODUCER:
                    await self._complete(machine, producer, prepared)
                self._is_settled = True
                await self._transactions(machine, producer, number)
        except KafkaError:
            await asyncio.sleep(RETRY_S)

    async def _complete(
        self, machine: Machine, producer: Producer, prepared: ProducerIdAndEpoch
    ) -> None:
        """Complete the transaction of an earlier instance, as it was decided."""
        env, now, txn = self._env, machine.world.clock.monotonic, self._last
        commit = prepared == self._decided
        env.note(EndStarted(now(), txn, commit))
        try:
            await producer.complete_transaction(self._decided)
        except KafkaError as error:
            env.note(EndFinished(now(), txn, commit, error.code.name))
            raise
        env.note(EndFinished(now(), txn, commit, None))
        env.history.count("prepared transactions completed by another instance")

    async def _transactions(self, machine: Machine, producer: Producer, instance: int) -> None:
        env, number = self._env, 0
        while not env.over.is_set():
            number += 1
            self._last = f"{self._id}.{instance}.{number}"
            transaction = ClientTransaction(env, machine, producer, self._last)
            self._is_settled = False
            try:
                await self._transaction(machine, producer, transaction)
            except AbortableTransactionError:
                if self._decided == producer.producer_id_and_epoch:
                    raise  # It must be committed, by the next instance.
                await transaction.end(commit=False)
            except KafkaError:
                transaction.give_up()
                raise
            self._is_settled = True
            await env.pause(0.3)

    async def _transaction(
        self, machine: Machine, producer: Producer, transaction: ClientTransaction
    ) -> None:
        env, rng = self._env, self._rng
        transaction.begin()
        for partition in env.some_partitions():
            await transaction.send(partition)
        self._maybe_die()
        prepared = await producer.prepare_transaction()
        self._maybe_die()
        commit = rng.random() < 0.7
        now = machine.world.clock.monotonic
        if commit:
            self._decided = prepared
            env.note(TransactionDecided(now(), transaction.txn, commit))
        if rng.random() < 0.15:
            # Longer than the timeout of other transactions.
            await asyncio.sleep(rng.choice((1.0, 4.0)))
        self._maybe_die()
        await transaction.end(commit=commit)

    def _maybe_die(self) -> None:
        """Die without an abort, as a process that is killed, with a small chance."""
        if self._rng.random() < 0.05:
            self._env.history.count("producers that died in two-phase commit")
            raise asyncio.CancelledError
