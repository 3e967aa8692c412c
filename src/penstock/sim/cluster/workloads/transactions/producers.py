"""Transactional producers of our client. Instances of a transactional id follow one another: each
dies in the middle of a transaction, is fenced, or goes on as a zombie beside its successor."""

from __future__ import annotations

import asyncio

from penstock.client.producer.producer import Producer
from penstock.client.producer.transaction_state import (
    AbortableTransactionError,
    FatalTransactionError,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.sim.cluster.transaction_events import ProducerInitialized
from penstock.sim.cluster.workloads.transactions.env import MAX_BLOCK_S, ClientTransaction, TxnEnv
from penstock.sim.cluster.workloads.workload import RETRY_S
from penstock.world.sim import Node as Machine

# A zombie ends after so many transactions if it is not fenced.
_ZOMBIE_TRANSACTIONS = 3
# Longer than every record takes: the transaction times out first.
_DELIVERY_TIMEOUT_S = 300.0


class TransactionalProducer:
    """All instances of one transactional id."""

    def __init__(self, env: TxnEnv, transactional_id: str) -> None:
        self._env = env
        self._id = transactional_id
        self._rng = env.rng

    async def run(self, machine: Machine) -> None:
        """Run one instance after the other until the run is over."""
        number = 0
        async with asyncio.TaskGroup() as instances:
            while not self._env.over.is_set():
                number += 1
                replaced = asyncio.Event()
                instances.create_task(self._instance(machine, number, replaced))
                await replaced.wait()

    async def _instance(self, machine: Machine, number: int, replaced: asyncio.Event) -> None:
        """Initialize a producer and run transactions. Set `replaced` when the next instance may
        begin, which may be before this one ends."""
        env, rng = self._env, self._rng
        try:
            async with (
                env.connected(machine) as client,
                client.producer(
                    transactional_id=self._id,
                    transaction_timeout_ms=rng.choice((700, 1_500, 3_000)),
                    max_block_s=MAX_BLOCK_S,
                    delivery_timeout_s=_DELIVERY_TIMEOUT_S,
                    linger_s=0.002,
                    batch_bytes=rng.choice((150, 4_000)),
                ) as producer,
            ):
                await producer.init_transactions()
                now = machine.world.clock.monotonic
                env.note(
                    ProducerInitialized(now(), self._id, number, *producer.producer_id_and_epoch)
                )
                await self._transactions(machine, producer, number, replaced)
        except FatalTransactionError:
            env.history.count("transactional producers fenced")
        except KafkaError:
            await asyncio.sleep(RETRY_S)
        finally:
            replaced.set()

    async def _transactions(
        self,
        machine: Machine,
        producer: Producer,
        instance: int,
        replaced: asyncio.Event,
    ) -> None:
        number = zombie = 0
        while not self._env.over.is_set() and zombie < _ZOMBIE_TRANSACTIONS:
            number += 1
            zombie += replaced.is_set()
            transaction = ClientTransaction(
                self._env, machine, producer, f"{self._id}.{instance}.{number}"
            )
            try:
                await self._transaction(transaction, replaced)
            except KafkaError:
                transaction.give_up()
                raise
            await self._env.pause(0.15)

    async def _transaction(self, transaction: ClientTransaction, replaced: asyncio.Event) -> None:
        rng = self._rng
        transaction.begin()
        try:
            for partition in self._env.some_partitions():
                for _ in range(rng.choice((1, 1, 2, 5))):
                    await transaction.send(partition)
                if rng.random() < 0.4:
                    await self._env.pause(0.1)
                await self._suffer(replaced)
            await transaction.end(commit=rng.random() < 0.7)
            return
        except AbortableTransactionError:
            pass
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            # The outcome is not known. The next instance fences this one.
            raise FatalTransactionError(error.code, error.message) from error
        await transaction.end(commit=False)

    async def _suffer(self, replaced: asyncio.Event) -> None:
        """Die, stall for longer than the transaction's timeout, or let a successor take over, each
        with a small chance."""
        dice = self._rng.random()
        if dice < 0.02:
            self._env.history.count("producers that died in a transaction")
            # As a process that is killed: a producer that is closed would abort.
            raise asyncio.CancelledError
        if dice < 0.03:
            self._env.history.count("producers that stalled in a transaction")
            await asyncio.sleep(self._rng.choice((1.0, 4.0)))
        elif dice < 0.06 and not replaced.is_set():
            self._env.history.count("zombies")
            replaced.set()
            await self._env.pause(1.0)
