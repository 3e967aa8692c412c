"""Verification of transactions by the coordinators on other brokers: the AddPartitionsToTxn
requests of this broker, and their answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.client.connection import Connection, open_connection
from penstock.client.errors import error_of
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import MAX_VERIFIED_PARTITIONS
from penstock.metadata.image import BrokerImage
from penstock.node.supervisor import Spawn
from penstock.world import World

if TYPE_CHECKING:
    from penstock.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 2.0
# A coordinator that is slower than this is not reachable for producers.
_REQUEST_TIMEOUT_S = 10.0
# Requests in flight to one broker.
_MAX_IN_FLIGHT = 4


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool


class Waiting(NamedTuple):
    future: asyncio.Future[None]
    abortable: bool


# What a coordinator is to be asked, and who waits for the answers.
Questions = dict[Transaction, dict[TopicPartition, list[Waiting]]]


class RemoteCoordinator:
    """Another broker that coordinates transactions, and the connections to it. `epoch` is its
    broker epoch."""

    def __init__(
        self,
        world: World,
        client_id: str,
        epoch: int,
        address: Callable[[], tuple[str, int] | None],
        spawn: Spawn,
    ) -> None:
        self._world = world
        self._client_id = client_id
        self._epoch = epoch
        self._address = address
        self._spawn = spawn
        self._questions: Questions = {}
        self._in_flight = 0
        # Whether a request is about to be made, of the questions of this turn.
        self._is_starting = False
        self._idle: list[Connection] = []
        # Connections with a request in flight.
        self._busy: dict[Connection, None] = {}
        self._connected_to: tuple[str, int] | None = None

    def ask(self, transaction: Transaction, partition: TopicPartition, waiting: Waiting) -> None:
        add_question(self._questions, transaction, partition, waiting)
        if not self._is_starting and self._in_flight < _MAX_IN_FLIGHT:
            self._is_starting = True
            self._in_flight += 1
            self._spawn(self._run())

    def broker_changed(self, broker: BrokerImage | None) -> None:
        """Fail the requests in flight if the broker was fenced or has started again. The connection
        of a broker that lost power is half open: nothing else ends it before the timeout."""
        if broker is None or broker.fenced or broker.epoch != self._epoch:
            self.close()
        if broker is not None:
            self._epoch = broker.epoch

    def close(self) -> None:
        """Close the connections. Requests in flight fail with a retriable error."""
        self._close_idle()
        for connection in list(self._busy):
            connection.close()

    async def _run(self) -> None:
        self._is_starting = False
        try:
            while self._questions:
                await self._send(self._take())
        finally:
            self._in_flight -= 1

    def _take(self) -> Questions:
        """Remove and return the questions of the next request, those that wait the longest. A
        request names a transactional id once."""
        taken: Questions = {}
        ids: set[str] = set()
        size = 0
        for transaction, partitions in self._questions.items():
            if transaction.transactional_id in ids:
                continue
            size += 1 + len(partitions)
            if taken and size > MAX_VERIFIED_PARTITIONS:
                break
            taken[transaction] = partitions
            ids.add(transaction.transactional_id)
        for transaction in taken:
            del self._questions[transaction]
        return taken

    async def _send(self, questions: Questions) -> None:
        # Imported on first use, as handlers are: a node must start quickly.
        from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

        try:
            address, connection = await self._connect()
            self._busy[connection] = None
            try:
                response = await connection.call(_request(questions), AddPartitionsToTxnResponse)
            finally:
                self._busy.pop(connection, None)
                self._release(address, connection)
            if response.error_code:
                raise _refused_request(response.error_code, connection.address)
        except KafkaError as error:
            logger.warning("%d transactions were not verified: %s", len(questions), error.message)
            for partitions in questions.values():
                fail_all(partitions, error)
            return
        codes = _codes(response)
        for transaction, partitions in questions.items():
            deliver(partitions, codes.get(transaction.transactional_id, {}))

    async def _connect(self) -> tuple[tuple[str, int], Connection]:
        address = self._address()
        if address != self._connected_to:
            self._close_idle()
            self._connected_to = address
        if address is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's address is not known"
            )
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return address, connection
        connection = await open_connection(
            self._world,
            *address,
            client_id=self._client_id,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            request_timeout_s=_REQUEST_TIMEOUT_S,
        )
        return address, connection

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _release(self, address: tuple[str, int], connection: Connection) -> None:
        """Keep a connection for the next request, unless the broker has moved meanwhile."""
        if address == self._connected_to and not connection.closed:
            self._idle.append(connection)
        else:
            connection.close()


def add_question(
    questions: Questions, transaction: Transaction, partition: TopicPartition, waiting: Waiting
) -> None:
    questions.setdefault(transaction, {}).setdefault(partition, []).append(waiting)


def _request(questions: Questions) -> AddPartitionsToTxnRequest:
    from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic

    def topics(partitions: Collection[TopicPartition]) -> tuple[Topic, ...]:
        indexes: dict[str, list[int]] = {}
        for name, index in partitions:
            indexes.setdefault(name, []).append(index)
        return tuple(
            Topic(name=name, partitions=tuple(numbers)) for name, numbers in indexes.items()
        )

    return AddPartitionsToTxnRequest(
        transactions=tuple(
            AddPartitionsToTxnRequest.Transaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                verify_only=not transaction.add,
                topics=topics(partitions),
            )
            for transaction, partitions in questions.items()
        )
    )


def _codes(response: AddPartitionsToTxnResponse) -> dict[str, dict[TopicPartition, int]]:
    return {
        result.transactional_id: {
            TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def deliver(
    partitions: dict[TopicPartition, list[Waiting]], codes: Mapping[TopicPartition, int]
) -> None:
    for partition, all_waiting in partitions.items():
        code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        for waiting in all_waiting:
            if code:
                fail(waiting, _refusal(code, partition, abortable=waiting.abortable))
            elif not waiting.future.done():
                waiting.future.set_result(None)


def _refused_request(code: int, address: str) -> KafkaError:
    error = error_of(code, f"{address} refused to verify transactions: error {code}")
    if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # This broker lacks the permission. Its clients must not take the error for theirs.
        return KafkaError(ErrorCode.INVALID_TXN_STATE, error.message)
    return error


def _refusal(code: int, partition: TopicPartition, *, abortable: bool) -> KafkaError:
    """Return the coordinator's error as producers expect it."""
    error = error_of(code, f"the coordinator does not have {partition} in an open transaction")
    if error.code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "the coordinator fenced the producer")
    if error.code is ErrorCode.OPERATION_NOT_ATTEMPTED:
        # The coordinator does not know another partition of the request yet, and added none.
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{partition} was not added yet")
    if error.code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, error.message)
    return error


def fail_all(partitions: dict[TopicPartition, list[Waiting]], error: KafkaError) -> None:
    for all_waiting in partitions.values():
        for waiting in all_waiting:
            fail(waiting, error)


def fail(waiting: Waiting, error: KafkaError) -> None:
    if not waiting.future.done():
        waiting.future.set_exception(error)
        # The waiter may have been cancelled: nobody else retrieves the exception then.
        waiting.future.exception()
