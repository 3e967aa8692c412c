"""A transactional producer of the protocol before KIP-890 part 2, as librdkafka and aiokafka speak
it: AddPartitionsToTxn v0 to v3, Produce up to v11, EndTxn up to v4.

Its epoch is the same in several transactions. It gives up a record only with its epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.client.routing import Coordinators, CoordinatorType
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Topic,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.build import NewRecord, build_batch
from penstock.sim.cluster.transaction_events import (
    EndFinished,
    EndStarted,
    ProducerInitialized,
    TransactionalSend,
    TransactionalSendAcknowledged,
    TransactionBegun,
)
from penstock.sim.cluster.workloads.transactions.env import MAX_BLOCK_S, TxnEnv
from penstock.sim.cluster.workloads.workload import RETRY_S
from penstock.world.sim import Node as Machine

T = TypeVar("T")

_CONCURRENT_RETRY_S = 0.02


class OldProducer:
    """All instances of one transactional id. Each is fenced by the next."""

    def __init__(self, env: TxnEnv, transactional_id: str) -> None:
        self._env = env
        self._id = transactional_id
        self._rng = env.rng

    async def run(self, machine: Machine) -> None:
        number = 0
        async with self._env.connected(machine) as client:
            while not self._env.over.is_set():
                number += 1
                try:
                    await _Instance(self._env, machine, client, self._id, number).run()
                except KafkaError:
                    await asyncio.sleep(RETRY_S)


class _Instance:
    def __init__(
        self, env: TxnEnv, machine: Machine, client: Client, transactional_id: str, number: int
    ) -> None:
        self._env = env
        self._rng = env.rng
        self._now = machine.world.clock.monotonic
        self._now_ms = machine.world.clock.now_ms
        self._cluster = client.cluster
        self._coordinators = Coordinators(client.cluster, CoordinatorType.TRANSACTION)
        self._id = transactional_id
        self._number = number
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self._versions = {
            "add": self._rng.choice((0, 1, 3)),
            "produce": self._rng.choice((7, 9, 11)),
            "end": self._rng.choice((1, 3, 4)),
        }

    async def run(self) -> None:
        """Run some transactions of one epoch."""
        await self._initialize()
        for number in range(1, self._rng.choice((1, 3, 10)) + 1):
            if self._env.over.is_set():
                return
            await self._transaction(f"{self._id}.{self._number}.{number}")
            await self._env.pause(0.15)

    async def _initialize(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._rng.choice((1_500, 3_000))
        )

        async def send(connection: Connection) -> InitProducerIdResponse:
            response = await connection.call(request, InitProducerIdResponse, max_version=4)
            check(response.error_code, "InitProducerId")
            return response

        response = await self._retry(lambda: self._coordinators.send_once(self._id, send))
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._env.note(
            ProducerInitialized(self._now(), self._id, self._number, self._producer_id, self._epoch)
        )

    async def _transaction(self, txn: str) -> None:
        env, rng = self._env, self._rng
        env.note(TransactionBegun(self._now(), txn, self._producer_id, self._epoch, bumps=False))
        partitions, count = env.some_partitions(), 0
        await self._retry(lambda: self._add(partitions))
        for partition in partitions:
            if rng.random() < 0.1:
                await self._abort_in_flight(txn, partition)
            for _ in range(rng.choice((1, 2))):
                values = [
                    f"{txn}:{count + index}".encode() for index in range(1, rng.choice((2, 4)))
                ]
                count += len(values)
                await self._send(txn, partition, values)
            if rng.random() < 0.4:
                await env.pause(0.1)
            if rng.random() < 0.02:
                env.history.count("producers that died in a transaction")
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "this instance dies")
        await self._finish(txn, commit=rng.random() < 0.7)

    async def _finish(self, txn: str, *, commit: bool) -> None:
        env = self._env
        env.note(EndStarted(self._now(), txn, commit))
        try:
            await self._retry(lambda: self._end(commit))
        except KafkaError as error:
            env.note(EndFinished(self._now(), txn, commit, error.code.name))
            raise
        env.note(EndFinished(self._now(), txn, commit, None))
        env.history.count("transactions of the old protocol ended")

    async def _abort_in_flight(self, txn: str, partition: TopicPartition) -> None:
        """Abort while the first batch of a partition is on its way, and end this instance: its
        epoch is given up with the batch. The leader may still be verifying the transaction when
        the marker comes."""
        value = f"{txn}:0".encode()
        self._env.note(TransactionalSend(self._now(), txn, partition, value))
        batch = self._batch(partition, [value])
        sending = asyncio.ensure_future(self._produce(partition, batch))
        await self._env.pause(0.02)
        try:
            await self._finish(txn, commit=False)
        finally:
            await asyncio.wait([sending])
            sending.exception()
        self._env.history.count("transactions aborted with a batch in flight")
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "this instance ends")

    async def _add(self, partitions: list[TopicPartition]) -> None:
        names = dict.fromkeys(partition.topic for partition in partitions)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=tuple(
                Topic(
                    name=name,
                    partitions=tuple(each.partition for each in partitions if each.topic == name),
                )
                for name in names
            ),
        )

        async def send(connection: Connection) -> None:
            response = await connection.call(
                request, AddPartitionsToTxnResponse, max_version=self._versions["add"]
            )
            for topic in response.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    check(result.partition_error_code, "AddPartitionsToTxn")

        await self._coordinators.send_once(self._id, send)

    async def _send(self, txn: str, partition: TopicPartition, values: list[bytes]) -> None:
        """Send one batch until it is acknowledged."""
        batch = self._batch(partition, values)
        for value in values:
            self._env.note(TransactionalSend(self._now(), txn, partition, value))
        base_offset = await self._retry(lambda: self._produce(partition, batch))
        for index, value in enumerate(values):
            offset = base_offset + index if base_offset >= 0 else -1
            self._env.note(
                TransactionalSendAcknowledged(self._now(), txn, partition, value, offset)
            )

    def _batch(self, partition: TopicPartition, values: list[bytes]) -> bytes:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        return build_batch(
            [NewRecord(None, value, (), self._now_ms()) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )

    async def _produce(self, partition: TopicPartition, batch: bytes) -> int:
        topic, info = await self._cluster.leader(partition)
        connection = await self._cluster.broker(info.leader)
        data = ProduceRequest.TopicData.PartitionData(index=partition.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=1_500,
            topic_data=(
                ProduceRequest.TopicData(
                    name=partition.topic, topic_id=topic.id, partition_data=(data,)
                ),
            ),
        )
        try:
            response = await connection.call(
                request, ProduceResponse, max_version=self._versions["produce"]
            )
            result = response.responses[0].partition_responses[0]
            check(result.error_code, "Produce")
        except KafkaError:
            self._cluster.metadata.forget(partition.topic)
            raise
        return result.base_offset

    async def _end(self, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )

        async def send(connection: Connection) -> None:
            response = await connection.call(
                request, EndTxnResponse, max_version=self._versions["end"]
            )
            check(response.error_code, "EndTxn")

        await self._coordinators.send_once(self._id, send)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until it is executed. Another error ends this instance."""
        deadline = self._now() + MAX_BLOCK_S
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.code.retriable or self._now() > deadline:
                    raise
                is_concurrent = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            await asyncio.sleep(_CONCURRENT_RETRY_S if is_concurrent else RETRY_S)
