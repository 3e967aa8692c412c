"""Verification of transactions: asks transaction coordinators whether partitions are part of a
producer's transaction, or makes them part of it (KIP-890).

The verifications of one turn of the event loop go to a coordinator in one AddPartitionsToTxn
request. A few such requests are in flight to another broker, each on its own connection, because a
coordinator holds a request while a transaction in it is being completed. Verifications that come
meanwhile share the next request.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.metadata import MetadataView
from penstock.node.shards.internal_topics import TRANSACTION_TOPIC
from penstock.node.shards.remote_verification import (
    Questions,
    RemoteCoordinator,
    Transaction,
    Waiting,
    add_question,
    deliver,
    fail,
    fail_all,
)
from penstock.node.supervisor import Spawn
from penstock.world import World

# AddPartitionsToTxn v4 and later, which brokers send, is of transaction version 2, as in Kafka.
_TRANSACTION_VERSION = 2

Codes = dict[TopicPartition, ErrorCode]


class LocalCoordinator(Protocol):
    """The transaction coordinator of this broker."""

    def partition_of(self, transactional_id: str) -> int | None: ...

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> Codes | Awaitable[Codes]: ...


class TxnVerifier:
    """`local` returns this broker's transaction coordinator; parts of a node that need each other
    are built one after the other."""

    def __init__(
        self,
        world: World,
        node_id: int,
        metadata: MetadataView,
        local: Callable[[], LocalCoordinator],
        spawn: Spawn,
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._metadata = metadata
        self._local = local
        self._spawn = spawn
        self._local_questions: Questions = {}
        self._coordinators: dict[int, RemoteCoordinator] = {}

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        abortable: bool,
    ) -> asyncio.Future[None]:
        """Return a future that completes when the partition is part of the producer's open
        transaction. KafkaError if it is not, or if the coordinator cannot say.

        With `add` the coordinator adds the partition, and begins the transaction if it has not
        begun. `abortable` tells that the client knows TRANSACTION_ABORTABLE.
        """
        waiting = Waiting(asyncio.get_running_loop().create_future(), abortable)
        coordinator_id = self._coordinator_of(transactional_id)
        if coordinator_id is None:
            fail(
                waiting,
                KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"no broker coordinates the transactions of {transactional_id!r} now",
                ),
            )
            return waiting.future
        transaction = Transaction(transactional_id, producer_id, producer_epoch, add)
        if coordinator_id == self._node_id:
            self._ask_local(transaction, partition, waiting)
        else:
            self._remote(coordinator_id).ask(transaction, partition, waiting)
        return waiting.future

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Give up the connections to coordinators that were fenced or have started again."""
        for broker_id in delta.brokers:
            coordinator = self._coordinators.get(broker_id)
            if coordinator is not None:
                coordinator.broker_changed(image.brokers.get(broker_id))

    def close(self) -> None:
        for coordinator in self._coordinators.values():
            coordinator.close()

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """Return the live broker that leads the id's partition of __transaction_state."""
        index = self._local().partition_of(transactional_id)
        if index is None:
            return None
        image = self._metadata.image
        leader = image.brokers.get(image.topics[TRANSACTION_TOPIC].partitions[index].leader)
        return None if leader is None or leader.fenced else leader.id

    def _remote(self, broker_id: int) -> RemoteCoordinator:
        coordinator = self._coordinators.get(broker_id)
        if coordinator is None:
            coordinator = self._coordinators[broker_id] = RemoteCoordinator(
                self._world,
                f"broker-{self._node_id}-transactions",
                self._metadata.image.brokers[broker_id].epoch,
                lambda: self._metadata.broker_address(broker_id),
                self._spawn,
            )
        return coordinator

    # This broker's own coordinator

    def _ask_local(
        self, transaction: Transaction, partition: TopicPartition, waiting: Waiting
    ) -> None:
        if not self._local_questions:
            asyncio.get_running_loop().call_soon(self._send_local)
        add_question(self._local_questions, transaction, partition, waiting)

    def _send_local(self) -> None:
        questions, self._local_questions = self._local_questions, {}
        coordinator = self._local()
        for transaction, partitions in questions.items():
            codes = coordinator.add_partitions(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                list(partitions),
                verify_only=not transaction.add,
                transaction_version=_TRANSACTION_VERSION,
            )
            if inspect.isawaitable(codes):
                self._spawn(_deliver_later(partitions, codes))
            else:
                deliver(partitions, codes)


async def _deliver_later(
    partitions: dict[TopicPartition, list[Waiting]], codes: Awaitable[Codes]
) -> None:
    try:
        deliver(partitions, await codes)
    except KafkaError as error:
        fail_all(partitions, error)
