"""TxnVerifier: which coordinator is asked, what is merged into one request, and the errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.config.node import read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import SERVED
from penstock.ids import TopicPartition
from penstock.limits import MAX_VERIFIED_PARTITIONS
from penstock.metadata.image import (
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.node.delayed import ActionQueue
from penstock.node.metadata import MetadataView
from penstock.node.shards.verification import Codes, TxnVerifier
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TopicResult,
)
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.server.dispatch import Dispatch
from penstock.server.server import Server
from penstock.world import World
from penstock.world.sim import Simulation

# Broker 1 coordinates the ids that begin with "a", broker 2 the others.
PARTITIONS = {
    0: PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=1),
    1: PartitionState(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1),
}
_PROPERTIES = b"""\
process.roles=broker
node.id=2
listeners=PLAINTEXT://b2:9092
controller.listener.names=CONTROLLER
controller.quorum.voters=9@controller:9093
log.dirs=/unused
"""


def name(index: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, index)


class LocalCoordinator:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.code = ErrorCode.NONE
        self.is_immediate = True
        self.exists = True

    def partition_of(self, transactional_id: str) -> int | None:
        return (0 if transactional_id.startswith("a") else 1) if self.exists else None

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> Codes | Awaitable[Codes]:
        self.asked.append(
            (
                transactional_id,
                producer_id,
                producer_epoch,
                list(partitions),
                verify_only,
                transaction_version,
            )
        )
        codes = dict.fromkeys(partitions, self.code)
        return codes if self.is_immediate else _later(codes)


async def _later(codes: Codes) -> Codes:
    await asyncio.sleep(1)
    return codes


class RemoteBroker:
    """Broker 2: a real server, and a coordinator that answers after a second."""

    def __init__(self, world: World) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.code = ErrorCode.NONE
        self.top_level = ErrorCode.NONE
        self.delay_s = 1.0
        self.config = read_node_config(_PROPERTIES, "test")
        self.server = Server(
            world,
            self.config,
            Dispatch(self, {18: SERVED[18], 24: SERVED[24]}, self._load),
            actions=ActionQueue(world.clock),
        )

    def _load(self, key: int) -> Callable[[Any, Any, Any], object]:
        return self._versions if key == 18 else lambda *args: self._add(*args)

    @staticmethod
    def _versions(_parts: Any, _request: Any, _context: Any) -> ApiVersionsResponse:
        keys = tuple(
            ApiVersionsResponse.ApiKey(api_key=key, min_version=0, max_version=last)
            for key, last in ((18, 4), (24, 5))
        )
        return ApiVersionsResponse(api_keys=keys)

    async def _add(
        self, _parts: Any, request: AddPartitionsToTxnRequest, context: Any
    ) -> AddPartitionsToTxnResponse:
        assert context.version == 5
        self.requests.append(request)
        await asyncio.sleep(self.delay_s)
        results = tuple(
            AddPartitionsToTxnResponse.TransactionResult(
                transactional_id=transaction.transactional_id,
                topic_results=tuple(
                    TopicResult(
                        name=topic.name,
                        results_by_partition=tuple(
                            TopicResult.PartitionResult(
                                partition_index=index, partition_error_code=self.code
                            )
                            for index in topic.partitions
                        ),
                    )
                    for topic in transaction.topics
                ),
            )
            for transaction in request.transactions
        )
        return AddPartitionsToTxnResponse(error_code=self.top_level, results_by_transaction=results)


class Run:
    def __init__(self, world: World, remote: RemoteBroker) -> None:
        self.world = world
        self.local = LocalCoordinator()
        self.remote = remote
        self.tasks: set[asyncio.Task[None]] = set()
        self.address: tuple[str, int] | None = ("b2", 9092)
        brokers = {
            number: BrokerImage(number, 7, UUID(int=number), fenced=False) for number in (1, 2)
        }
        topic = TopicImage("__transaction_state", UUID(int=77), PARTITIONS)
        self.metadata = SimpleNamespace(
            image=MetadataImage(brokers=brokers, topics={topic.name: topic}),
            broker_address=lambda _broker: self.address,
        )
        self.verifier = TxnVerifier(
            world, 1, cast(MetadataView, self.metadata), lambda: self.local, self.spawn
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        return task

    def change_broker(self, *, fenced: bool, epoch: int) -> None:
        """Change broker 2 in the metadata."""
        image = self.metadata.image
        broker = BrokerImage(2, epoch, UUID(int=2), fenced=fenced)
        self.metadata.image = replace(image, brokers={**image.brokers, 2: broker})
        self.verifier.apply(self.metadata.image, MetadataDelta(brokers=frozenset({2})))

    def verify(
        self,
        transactional_id: str,
        index: int = 0,
        *,
        producer: int = 1,
        epoch: int = 0,
        add: bool = True,
        abortable: bool = True,
    ) -> asyncio.Future[None]:
        return self.verifier.verify(
            transactional_id, producer, epoch, name(index), add=add, abortable=abortable
        )


def run(test: Callable[[Run], Coroutine[Any, Any, None]]) -> None:
    simulation = Simulation(1)

    async def main() -> None:
        remote = RemoteBroker(simulation.node("b2").world)
        await remote.server.start()
        await remote.server.accept_clients()
        current = Run(simulation.node("b1").world, remote)
        await test(current)
        current.verifier.close()
        for task in current.tasks:
            task.cancel()
        await asyncio.gather(*current.tasks, return_exceptions=True)
        await remote.server.stop(0.1)

    simulation.run(main())


async def code_of(verification: asyncio.Future[None]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await verification
    return refused.value.code


@pytest.mark.parametrize("is_immediate", [True, False])
def test_this_brokers_own_coordinator_is_asked_directly_and_once(is_immediate: bool) -> None:
    async def test(current: Run) -> None:
        current.local.is_immediate = is_immediate
        verifications = [current.verify("a", index) for index in range(50)]
        await asyncio.gather(*verifications)
        assert current.local.asked == [("a", 1, 0, [name(index) for index in range(50)], False, 2)]
        assert current.remote.requests == []

    run(test)


def test_transactions_of_one_turn_go_to_a_remote_coordinator_in_one_request() -> None:
    async def test(current: Run) -> None:
        verifications = [
            current.verify(transactional_id, index, add=index == 0)
            for transactional_id in ("x", "y")
            for index in range(3)
        ]
        await asyncio.gather(*verifications)
        (first, second) = current.remote.requests
        assert [(txn.transactional_id, txn.verify_only) for txn in first.transactions] == [
            ("x", False),
            ("y", False),
        ]
        assert [(txn.transactional_id, txn.verify_only) for txn in second.transactions] == [
            ("x", True),
            ("y", True),
        ]
        assert second.transactions[0].topics[0].partitions == (1, 2)

    run(test)


def test_few_requests_are_in_flight_and_the_next_has_all_that_came_meanwhile() -> None:
    """A request that the coordinator holds does not delay the others."""

    async def test(current: Run) -> None:
        verifications = []
        for number in range(10):
            verifications.append(current.verify(f"x{number}"))
            await asyncio.sleep(0.15)
        await asyncio.gather(*verifications)
        counts = [len(request.transactions) for request in current.remote.requests]
        assert counts[:5] == [1, 1, 1, 1, 3]
        assert sum(counts) == 10

    run(test)


def test_requests_are_of_bounded_size() -> None:
    async def test(current: Run) -> None:
        count = MAX_VERIFIED_PARTITIONS
        await asyncio.gather(*[current.verify(f"x{number}") for number in range(count)])
        assert [len(request.transactions) for request in current.remote.requests] == [
            count // 2,
            count // 2,
        ]

    run(test)


def test_the_same_question_is_asked_once() -> None:
    async def test(current: Run) -> None:
        await asyncio.gather(*[current.verify("x") for _ in range(5)])
        (request,) = current.remote.requests
        assert request.transactions[0].topics[0].partitions == (0,)

    run(test)


def test_epochs_of_one_transactional_id_are_in_different_requests() -> None:
    async def test(current: Run) -> None:
        await asyncio.gather(*[current.verify("x", epoch=epoch) for epoch in range(3)])
        epochs = [request.transactions[0].producer_epoch for request in current.remote.requests]
        assert epochs == [0, 1, 2]

    run(test)


@pytest.mark.parametrize(
    ("code", "abortable", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, True, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, False, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, True, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, True, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
@pytest.mark.parametrize("transactional_id", ["a", "x"])
def test_errors_are_those_that_producers_expect(
    transactional_id: str, code: ErrorCode, abortable: bool, expected: ErrorCode
) -> None:
    async def test(current: Run) -> None:
        current.local.code = current.remote.code = code
        verification = current.verify(transactional_id, abortable=abortable)
        assert await code_of(verification) == expected

    run(test)


def test_a_request_that_is_refused_as_a_whole_fails_all_verifications() -> None:
    async def test(current: Run) -> None:
        current.remote.top_level = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for verification in [current.verify("x"), current.verify("y")]:
            assert await code_of(verification) == ErrorCode.INVALID_TXN_STATE

    run(test)


def test_without_a_coordinator_the_error_is_retriable() -> None:
    async def test(current: Run) -> None:
        current.address = None
        assert await code_of(current.verify("x")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        current.address = ("b2", 9999)
        assert await code_of(current.verify("x")) == ErrorCode.NETWORK_EXCEPTION
        current.address = ("b2", 9092)
        await current.verify("x")
        current.remote.delay_s = 100
        assert await code_of(current.verify("x")) == ErrorCode.NETWORK_EXCEPTION
        current.remote.delay_s = 0
        await current.verify("x")
        image = current.metadata.image
        fenced = BrokerImage(2, 7, UUID(int=2), fenced=True)
        current.metadata.image = MetadataImage(
            brokers={1: image.brokers[1], 2: fenced}, topics=image.topics
        )
        assert await code_of(current.verify("x")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        current.local.exists = False
        assert await code_of(current.verify("a")) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_coordinator_that_lost_power_is_given_up_when_the_metadata_says_so(fenced: bool) -> None:
    """Its connection is half open, and the request would time out after 10 s only."""

    async def test(current: Run) -> None:
        current.remote.delay_s = 100
        began = current.world.clock.monotonic()
        verification = current.verify("x")
        await asyncio.sleep(1)
        current.change_broker(fenced=fenced, epoch=7 if fenced else 8)
        assert await code_of(verification) == ErrorCode.NETWORK_EXCEPTION
        assert current.world.clock.monotonic() - began < 1.1
        current.remote.delay_s = 0
        current.change_broker(fenced=False, epoch=8)
        await current.verify("x")

    run(test)


def test_a_change_of_the_coordinator_that_is_no_restart_fails_no_verification() -> None:
    async def test(current: Run) -> None:
        verification = current.verify("x")
        await asyncio.sleep(0.5)
        current.change_broker(fenced=False, epoch=7)
        await verification

    run(test)


def test_a_connection_that_the_coordinator_closed_is_opened_again() -> None:
    async def test(current: Run) -> None:
        await current.verify("x")
        await current.remote.server.stop(0.1)
        assert await code_of(current.verify("x")) == ErrorCode.NETWORK_EXCEPTION

    run(test)


def test_a_waiter_that_gave_up_does_not_disturb_the_others() -> None:
    async def test(current: Run) -> None:
        first, second = current.verify("x"), current.verify("x")
        await asyncio.sleep(0.1)
        first.cancel()
        await second

    run(test)
