"""List and describe transactions, fence their producers, and find hanging ones (KIP-664).

Error messages are those of Kafka's admin client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from penstock.client.admin.producers import ProducerState, describe_producers
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.client.routing import Coordinators, CoordinatorType
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.apis import find_api
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ANY_DURATION = -1
# Partitions of one DescribeProducers request, as in kafka-transactions.sh.
DESCRIBED_PARTITIONS = 500
_MINUTE_MS = 60_000
_LIST_TRANSACTIONS_KEY = 66


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`start_ms` is None if no transaction is open."""

    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    partition: TopicPartition
    producer: ProducerState


async def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int = ANY_DURATION,
    pattern: str | None = None,
) -> dict[int, list[TransactionListing]]:
    """Return the transactions by the broker that coordinates them.

    `pattern` is a regular expression of transactional ids (KIP-1152).
    """
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern or None,
    )
    needed = 2 if pattern else 1 if longer_than_ms >= 0 else 0

    async def of_broker(broker_id: int) -> list[TransactionListing]:
        connection = await cluster.broker(broker_id)
        _require_list_transactions(connection, needed)
        response = await connection.call(request, ListTransactionsResponse)
        check(
            response.error_code,
            f"ListTransactions request sent to broker {broker_id} failed with an unexpected "
            "exception",
        )
        return [
            TransactionListing(
                transaction.transactional_id, transaction.producer_id, transaction.transaction_state
            )
            for transaction in response.transaction_states
        ]

    async def attempt() -> dict[int, list[TransactionListing]]:
        await cluster.topics([])
        brokers = sorted(cluster.metadata.brokers)
        listings = await asyncio.gather(*map(of_broker, brokers))
        return dict(zip(brokers, listings, strict=True))

    return await cluster.retry(attempt)


def _require_list_transactions(connection: Connection, version: int) -> None:
    supported = connection.broker_versions.get(_LIST_TRANSACTIONS_KEY)
    if version and (supported is None or supported.last < version):
        name = find_api(_LIST_TRANSACTIONS_KEY).name
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{connection.address} does not support {name} version {version}, which this filter "
            "needs",
        )


async def describe_transaction(
    coordinators: Coordinators, transactional_id: str
) -> TransactionDescription:
    """Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND if no coordinator knows the id."""

    async def send(connection: Connection) -> TransactionDescription:
        response = await connection.call(
            DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
            DescribeTransactionsResponse,
        )
        (described,) = response.transaction_states
        check(
            described.error_code,
            f"DescribeTransactions request for transactionalId `{transactional_id}` failed "
            + (
                "because the ID could not be found"
                if described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                else "due to unexpected error"
            ),
        )
        coordinator = coordinators.cached(transactional_id)
        return TransactionDescription(
            -1 if coordinator is None else coordinator,
            described.transaction_state,
            described.producer_id,
            described.producer_epoch,
            described.transaction_timeout_ms,
            None
            if described.transaction_start_time_ms < 0
            else described.transaction_start_time_ms,
            tuple(
                TopicPartition(topic.topic, index)
                for topic in described.topics
                for index in topic.partitions
            ),
        )

    return await coordinators.send(transactional_id, send)


async def fence_producer(
    coordinators: Coordinators, transactional_id: str, timeout_ms: int
) -> tuple[int, int]:
    """Abort the transactional id's open transaction and fence its producers; return the new
    producer id and epoch."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )

    async def send(connection: Connection) -> tuple[int, int]:
        response = await connection.call(request, InitProducerIdResponse)
        check(
            response.error_code,
            f"InitProducerId request for transactionalId `{transactional_id}` failed due to "
            "unexpected error",
        )
        return response.producer_id, response.producer_epoch

    return await coordinators.send(transactional_id, send)


async def find_hanging(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    *,
    max_timeout_min: int,
    broker_id: int | None = None,
) -> list[OpenTransaction]:
    """Return the open transactions that no coordinator will end.

    Only transactions without a write for `max_timeout_min` are considered. Theirs is a hanging one
    if no coordinator knows the producer id, or if the partition is not part of its transaction.
    """
    now_ms = cluster.world.clock.now_ms()
    open_transactions: list[OpenTransaction] = []
    searched = list(partitions)
    for start in range(0, len(searched), DESCRIBED_PARTITIONS):
        part = searched[start : start + DESCRIBED_PARTITIONS]
        for partition, producers in (await describe_producers(cluster, part, broker_id)).items():
            open_transactions += [
                OpenTransaction(partition, producer)
                for producer in producers
                if producer.transaction_start_offset is not None
                and now_ms - producer.last_timestamp > max_timeout_min * _MINUTE_MS
            ]
    if not open_transactions:
        return []
    listed = await list_transactions(
        cluster,
        producer_ids=sorted({found.producer.producer_id for found in open_transactions}),
    )
    ids = {
        listing.producer_id: listing.transactional_id
        for listings in listed.values()
        for listing in listings
    }
    coordinators = Coordinators(cluster, CoordinatorType.TRANSACTION)
    known: dict[int, frozenset[TopicPartition]] = {}
    for producer_id, transactional_id in ids.items():
        try:
            description = await describe_transaction(coordinators, transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
        else:
            known[producer_id] = frozenset(description.partitions)
    return [
        found
        for found in open_transactions
        if found.partition not in known.get(found.producer.producer_id, frozenset())
    ]
