"""Transactional producers for the tests of handlers: the requests of a client, one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import TRANSACTION_TOPIC
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.records.batch import read_header
from tests.handlers.fake_node import FakeNode, FakePartition, answer

FIND, INIT, ADD, ADD_OFFSETS, END, DESCRIBE, LIST = 10, 22, 24, 25, 26, 65, 66
TRANSACTIONAL_ID = "payments"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


class Producer(NamedTuple):
    id: int
    epoch: int


async def state_partition(node: FakeNode) -> FakePartition:
    """Return the partition of all transactional ids in these tests. The first FindCoordinator
    creates it."""
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=(TRANSACTIONAL_ID,))
    found = await answer(node, FIND, 6, request)
    assert [(broker.node_id, broker.error_code) for broker in found.coordinators] == [(1, 0)]
    return node.partitions[TopicPartition(TRANSACTION_TOPIC, 0)]


def init_request(**fields: Any) -> InitProducerIdRequest:
    given = {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout_ms": 60_000}
    return InitProducerIdRequest(**{**given, **fields})


async def init(node: FakeNode, **fields: Any) -> Producer:
    response = await answer(node, INIT, 5, init_request(**fields))
    assert response.error_code == ErrorCode.NONE
    return Producer(response.producer_id, response.producer_epoch)


def add_request(
    version: int,
    producer: Producer,
    *partitions: int,
    topic: str = "orders",
    transactional_id: str = TRANSACTIONAL_ID,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    topics = (Topic(name=topic, partitions=partitions),)
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnRequest.Transaction(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=(transaction,))


async def add(node: FakeNode, producer: Producer, *partitions: int, **fields: Any) -> list[int]:
    """Add partitions of `orders`; return their error codes."""
    version = fields.pop("version", 3)
    response = await answer(
        node, ADD, version, add_request(version, producer, *partitions, **fields)
    )
    return added_codes(response, version)


def added_codes(response: Any, version: int) -> list[int]:
    topics = (
        response.results_by_topic_v3_and_below
        if version < 4
        else response.results_by_transaction[0].topic_results
    )
    return [
        result.partition_error_code for topic in topics for result in topic.results_by_partition
    ]


async def add_offsets(node: FakeNode, producer: Producer, **fields: Any) -> int:
    given = {
        "transactional_id": TRANSACTIONAL_ID,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "group_id": "readers",
    }
    version = fields.pop("version", 4)
    request = AddOffsetsToTxnRequest(**{**given, **fields})
    return int((await answer(node, ADD_OFFSETS, version, request)).error_code)


def end_request(producer: Producer, **fields: Any) -> EndTxnRequest:
    given = {
        "transactional_id": TRANSACTIONAL_ID,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "committed": True,
    }
    return EndTxnRequest(**{**given, **fields})


async def end(node: FakeNode, producer: Producer, version: int = 4, **fields: Any) -> Any:
    return await answer(node, END, version, end_request(producer, **fields))


async def describe(node: FakeNode, transactional_id: str = TRANSACTIONAL_ID) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
    (state,) = (await answer(node, DESCRIBE, 0, request)).transaction_states
    return state


def markers(partition: FakePartition) -> int:
    """Return how many control batches a partition has."""
    return sum(read_header(data).is_control for _base, _end, data in partition.batches)
