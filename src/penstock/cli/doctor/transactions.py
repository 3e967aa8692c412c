"""Looks at transactions that are open for long or cannot complete, and at those that no coordinator
knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from penstock.cli.doctor.notes import Notes, is_reached, new_client
from penstock.client.admin.producers import describe_producers
from penstock.client.admin.transactions import DESCRIBED_PARTITIONS
from penstock.client.client import Client
from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.health.groups import STALE_UNREAD_MS
from penstock.health.observations import Transaction
from penstock.health.transactions import seen_twice
from penstock.ids import TopicPartition
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.world import World

# Transactions that are described, and partitions with open ones that are looked into.
_MAX_TRANSACTIONS = 100
_MAX_PARTITIONS = 2_000
_IN_FLIGHT = 8
_PREPARED = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_LIST_TRANSACTIONS_KEY = 66
_TRANSACTION_TOPIC = "__transaction_state"

# Partition and producer id -> the offset at which the transaction starts.
OpenTransactions = dict[tuple[TopicPartition, int], int]


async def look_at_transactions(
    world: World, bootstrap: str, named: str | None, over_s: float, notes: Notes
) -> None:
    """Note the transaction that the user names, and all that are open for long or are completing in
    two looks."""
    async with new_client(world, bootstrap) as client:
        suspects = [named] if named is not None else await _suspects(client, notes)
        first = {name: await _describe(client, name, named, notes) for name in suspects}
        if suspects:
            await asyncio.sleep(over_s)
        for name, before in first.items():
            after = before
            if before.exists and not before.error:
                after = await _describe(client, name, named, notes)
            notes.transactions.append(seen_twice(before, after))


async def find_hanging(world: World, bootstrap: str, notes: Notes) -> None:
    """Note the open transactions of partitions that no coordinator knows. A transaction is known
    before its first record is appended, so one that is open before and after its coordinators were
    asked, and that none of them has, is never ended."""
    if not notes.held:
        return
    async with new_client(world, bootstrap) as client:
        opened = await _open_transactions(client, notes.held)
        known = await _known(client, {producer for _partition, producer in opened}, notes)
        unknown = {key: start for key, start in opened.items() if key not in known}
        if not unknown:
            return
        still = await _open_transactions(client, [partition for partition, _producer in unknown])
    hanging: dict[int, dict[TopicPartition, int]] = {}
    for (partition, producer), start in unknown.items():
        if still.get((partition, producer)) == start:
            hanging.setdefault(producer, {})[partition] = start
    notes.transactions += [
        Transaction(None, producer, "Hanging", partitions=partitions)
        for producer, partitions in sorted(hanging.items())
    ]


async def _suspects(client: Client, notes: Notes) -> list[str]:
    """Return transactional ids whose transaction is open for long, or completing."""
    completing = ListTransactionsRequest(state_filters=_PREPARED)
    long_open = ListTransactionsRequest(state_filters=("Ongoing",), duration_filter=STALE_UNREAD_MS)
    found: set[str] = set()
    for request in (completing, long_open):
        found.update((await _list(client, request, notes)).values())
    return sorted(found)[:_MAX_TRANSACTIONS]


async def _list(client: Client, request: ListTransactionsRequest, notes: Notes) -> dict[int, str]:
    """Return the transactional ids that match, by producer id."""
    ids: dict[int, str] = {}

    async def of_broker(broker_id: int) -> None:
        connection = await client.cluster.broker(broker_id)
        supported = connection.broker_versions.get(_LIST_TRANSACTIONS_KEY)
        if supported is None or (request.duration_filter >= 0 and supported.last < 1):
            return
        response = await connection.call(request, ListTransactionsResponse)
        check(response.error_code, f"broker {broker_id} cannot list its transactions")
        ids.update(
            {each.producer_id: each.transactional_id for each in response.transaction_states}
        )

    brokers = [each.id for each in notes.brokers.values() if is_reached(each) and not each.fenced]
    await asyncio.gather(*map(of_broker, brokers))
    return ids


async def _describe(client: Client, name: str, named: str | None, notes: Notes) -> Transaction:
    try:
        found = await client.admin.describe_transaction(name)
    except KafkaError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return Transaction(name, named=name == named, exists=False)
        return Transaction(name, named=name == named, error=error.message)
    starts: dict[TopicPartition, int] = {}
    # Partitions without a leader that answers have findings of their own.
    live = notes.live_leaders()
    partitions = [partition for partition in found.partitions if partition in live]
    if found.start_ms is not None and partitions:
        starts = {
            partition: start
            for (partition, producer), start in (
                await _open_transactions(client, partitions)
            ).items()
            if producer == found.producer_id
        }
    return Transaction(
        name,
        found.producer_id,
        found.state,
        found.start_ms,
        found.timeout_ms,
        starts,
        named=name == named,
        involved=found.partitions,
    )


async def _open_transactions(
    client: Client, partitions: Sequence[TopicPartition]
) -> OpenTransactions:
    opened: OpenTransactions = {}
    for start in range(0, min(len(partitions), _MAX_PARTITIONS), DESCRIBED_PARTITIONS):
        part = partitions[start : start + DESCRIBED_PARTITIONS]
        for partition, producers in (await describe_producers(client.cluster, part)).items():
            for producer in producers:
                if producer.transaction_start_offset is not None:
                    key = (partition, producer.producer_id)
                    opened[key] = producer.transaction_start_offset
    return opened


async def _known(
    client: Client, producers: Iterable[int], notes: Notes
) -> set[tuple[TopicPartition, int]]:
    """Return the partitions of the producers' transactions, as their coordinators know them. Raises
    KafkaError if a coordinator does not answer: then nothing can be said."""
    await _check_coordinators(client, notes)
    request = ListTransactionsRequest(producer_id_filters=tuple(sorted(producers)))
    known: set[tuple[TopicPartition, int]] = set()
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def describe(producer: int, name: str) -> None:
        async with slots:
            description = await client.admin.describe_transaction(name)
        known.update((partition, producer) for partition in description.partitions)

    listed = await _list(client, request, notes)
    await asyncio.gather(*(describe(producer, name) for producer, name in listed.items()))
    return known


async def _check_coordinators(client: Client, notes: Notes) -> None:
    """Raise KafkaError unless all coordinators of transactions can be asked."""
    try:
        (topic,) = await client.cluster.topics([_TRANSACTION_TOPIC])
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # The cluster has not had a transaction yet.
            return
        raise
    reached = {broker.id for broker in notes.brokers.values() if is_reached(broker)}
    missing = [each.index for each in topic.partitions if each.leader not in reached]
    if missing:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{len(missing)} partitions of {_TRANSACTION_TOPIC}, such as {missing[0]}, have no "
            "leader that answers: their transactions are unknown",
        )
