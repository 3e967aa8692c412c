"""Transactional producers for the tests of handlers: their requests, and OffsetFetch with
require_stable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, cast

from penstock.errors import ErrorCode, KafkaError
from penstock.node.shards.verification import TxnVerifier
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.handlers.fake_node import FakeNode, FakePartition, answer, run
from tests.handlers.group_members import FETCH, FIND, GROUP, SETTINGS, offsets_partition

INIT_PRODUCER_ID, ADD_OFFSETS, END_TXN, TXN_COMMIT = 22, 25, 26, 28
_TRANSACTION = 1

TXN_SETTINGS = {
    **SETTINGS,
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

Test = Callable[[FakeNode, FakePartition], Coroutine[Any, Any, None]]


def with_offsets(test: Test, **settings: str) -> None:
    """Run a test on a broker that coordinates groups and transactions. It gets the partition of
    __consumer_offsets."""

    async def main(node: FakeNode) -> None:
        node.create("orders", 3)
        found = await answer(
            node,
            FIND,
            6,
            FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=("copier",)),
        )
        assert [found.error_code for found in found.coordinators] == [ErrorCode.NONE]
        await test(node, await offsets_partition(node))

    run(main, **TXN_SETTINGS, **settings)


class Producer(NamedTuple):
    id: int
    epoch: int
    transactional_id: str = "copier"


async def init_producer(node: FakeNode, transactional_id: str = "copier") -> Producer:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    response = await answer(node, INIT_PRODUCER_ID, 5, request)
    assert response.error_code == ErrorCode.NONE
    return Producer(response.producer_id, response.producer_epoch, transactional_id)


def txn_request(
    producer: Producer,
    offset: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    joined: Any = None,
    **fields: Any,
) -> TxnOffsetCommitRequest:
    committed = TxnOffsetCommitRequest.Topic.Partition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    given: dict[str, Any] = {
        "transactional_id": producer.transactional_id,
        "group_id": GROUP,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "topics": (TxnOffsetCommitRequest.Topic(name=topic, partitions=(committed,)),),
    }
    if joined is not None:
        given |= {"generation_id": joined.generation_id, "member_id": joined.member_id}
    return TxnOffsetCommitRequest(**{**given, **fields})


async def txn_commit(
    node: FakeNode, producer: Producer, offset: int, version: int = 5, **fields: Any
) -> ErrorCode:
    response = await answer(node, TXN_COMMIT, version, txn_request(producer, offset, **fields))
    return code_of(response)


def code_of(response: Any) -> ErrorCode:
    ((partition,),) = (topic.partitions for topic in response.topics)
    return ErrorCode(partition.error_code)


async def add_offsets(node: FakeNode, producer: Producer, group_id: str = GROUP) -> ErrorCode:
    """AddOffsetsToTxn, which producers send before TxnOffsetCommit v0 to v4."""
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )
    return ErrorCode((await answer(node, ADD_OFFSETS, 4, request)).error_code)


async def end_txn(
    node: FakeNode, producer: Producer, *, commit: bool = True, version: int = 5
) -> Producer:
    """End the transaction, and wait until its markers are written. Return the producer with its
    next epoch."""
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    response = await answer(node, END_TXN, version, request)
    assert response.error_code == ErrorCode.NONE
    await asyncio.sleep(1)
    if version < 5:
        return producer
    return Producer(response.producer_id, response.producer_epoch, producer.transactional_id)


async def fetched(
    node: FakeNode, partition: int = 0, *, stable: bool = True
) -> tuple[int, ErrorCode]:
    """Return the offset and the error of a partition."""
    topic = OffsetFetchRequest.Group.Topic(name="orders", partition_indexes=(partition,))
    group = OffsetFetchRequest.Group(group_id=GROUP, topics=(topic,))
    request = OffsetFetchRequest(groups=(group,), require_stable=stable)
    ((result,),) = (g.topics for g in (await answer(node, FETCH, 9, request)).groups)
    return result.partitions[0].committed_offset, ErrorCode(result.partitions[0].error_code)


class FakeVerifier:
    """Answers in place of the transaction coordinator, when the test says so."""

    def __init__(self, node: FakeNode) -> None:
        self.asked: list[tuple[str, bool, bool]] = []
        # None: the coordinator has the partition in the transaction.
        self.error: ErrorCode | None = None
        self.waits = False
        self.waiting: list[asyncio.Future[None]] = []
        assert isinstance(node.parts.verifier, TxnVerifier)
        cast(Any, node.parts.verifier).verify = self.verify

    def verify(
        self,
        transactional_id: str,
        _producer_id: int,
        _producer_epoch: int,
        _partition: object,
        *,
        add: bool,
        abortable: bool,
    ) -> asyncio.Future[None]:
        self.asked.append((transactional_id, add, abortable))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        if not self.waits:
            self.answer()
        return future

    def answer(self) -> None:
        for future in self.waiting:
            if self.error is None:
                future.set_result(None)
            else:
                future.set_exception(KafkaError(self.error, "said the coordinator"))
        self.waiting.clear()


def write_marker(
    node: FakeNode,
    producer: Producer,
    *,
    commit: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 1,
) -> Any:
    return node.groups.write_marker(
        0, producer.id, producer.epoch, commit, coordinator_epoch, transaction_version
    )
