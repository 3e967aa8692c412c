"""Finds the open transactions of a sink's tasks, and checks that prepared ones are still open."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping

from penstock.client.admin.transactions import TransactionListing
from penstock.client.client import Client
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.sink.decision import PreparedTransaction, SinkError
from penstock.spark.sink.transactions import OPEN

# The broker has no filter by pattern (KIP-1152), or refuses this one.
_NO_PATTERN = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGULAR_EXPRESSION)
# DescribeTransactions reports this for two-phase commit, which has no timeout (KIP-939).
_NO_TIMEOUT_MS = 2**31 - 1
# Without two-phase commit, a listed transaction must stay open until it is committed.
_LEAST_LEFT_MS = 60_000


async def list_open(client: Client, sink: str) -> list[PreparedTransaction]:
    """Return the open transactions of a sink's tasks."""
    task_ids = re.compile(re.escape(sink) + "/[0-9a-f]{16}/[0-9]+")
    listed = await _list(client, task_ids.pattern)
    ids = [
        transaction.transactional_id
        for transactions in listed.values()
        for transaction in transactions
        if task_ids.fullmatch(transaction.transactional_id)
    ]
    described = await asyncio.gather(*(_describe(client, name) for name in ids))
    return [transaction for transaction in described if transaction is not None]


async def _list(client: Client, pattern: str) -> Mapping[int, list[TransactionListing]]:
    """Return the open transactions whose ids match; all open ones if the brokers cannot filter by a
    pattern, because they are older or the pattern exceeds what they allow."""
    try:
        return await client.admin.list_transactions(states=[OPEN], pattern=pattern)
    except KafkaError as error:
        if error.code not in _NO_PATTERN:
            raise
    return await client.admin.list_transactions(states=[OPEN])


async def _describe(client: Client, transactional_id: str) -> PreparedTransaction | None:
    """Return None if the transaction is not open any more."""
    try:
        found = await client.admin.describe_transaction(transactional_id)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None
    if found.state != OPEN:
        return None
    producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
    return PreparedTransaction(transactional_id, producer)


async def check_open(client: Client, transactions: Iterable[PreparedTransaction]) -> None:
    """SinkError if a transaction is not open, or may time out before it is committed."""
    await asyncio.gather(*(_check(client, transaction) for transaction in transactions))


async def _check(client: Client, transaction: PreparedTransaction) -> None:
    name = transaction.transactional_id
    found = await client.admin.describe_transaction(name)
    producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
    if found.state != OPEN or producer != transaction.producer or found.start_ms is None:
        raise SinkError(
            f"the transaction of {name} was ended before its batch was committed (it is "
            f"{found.state}, timeout {found.timeout_ms / 1000:g} s), so nothing of the batch is "
            "written. Start the query again, which repeats the batch"
            f"{_timeout_advice(found.timeout_ms)}"
        )
    left_ms = found.start_ms + found.timeout_ms - client.cluster.world.clock.now_ms()
    if found.timeout_ms != _NO_TIMEOUT_MS and left_ms < _LEAST_LEFT_MS:
        raise SinkError(
            f"the transaction of {name} times out in {max(left_ms, 0) / 1000:.0f} s, which may be "
            "too soon to commit it, so nothing of the batch is written. Start the query again, "
            f"which repeats the batch{_timeout_advice(found.timeout_ms)}"
        )


def _timeout_advice(timeout_ms: int) -> str:
    if timeout_ms == _NO_TIMEOUT_MS:
        return ""
    return (
        ". Where batches take that long, raise transaction.max.timeout.ms of the brokers, or use "
        "brokers with transaction.two.phase.commit.enable=true"
    )
