"""kafka-transactions.sh: list, describe and abort transactions, and find hanging ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cli.kafka.options import Refused
from penstock.cli.kafka.session import with_admin
from penstock.cli.kafka.transactions_arguments import check, parser
from penstock.errors import KafkaError
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.producers import AbortTransactionSpec
    from penstock.client.client import Client

_PRODUCER_COLUMNS = [
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
]
_DESCRIBE_COLUMNS = [
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
]
_LIST_COLUMNS = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
_HANGING_COLUMNS = [
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
]
_MINUTE_MS = 60_000
_NONE = "None"


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    arguments = parser().parse_args(words)
    try:
        check(arguments)
        for line in with_admin(
            arguments.bootstrap_server,
            arguments.command_config,
            lambda client: _act(client, arguments),
        ):
            print(line)
    except (Refused, KafkaError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _act(client: Client, arguments: argparse.Namespace) -> list[str]:
    match arguments.command:
        case "list":
            return await _list(client, arguments)
        case "describe":
            return await _describe(client, arguments.transactional_id)
        case "describe-producers":
            return await _describe_producers(client, arguments)
        case "abort":
            return await _abort(client, arguments)
        case "find-hanging":
            return await _find_hanging(client, arguments)
    transactional_id = arguments.transactional_id
    with _failing(f"Failed to force terminate transactionalId `{transactional_id}`"):
        await client.admin.fence_producers([transactional_id])
    return []


async def _list(client: Client, arguments: argparse.Namespace) -> list[str]:
    with _failing("Failed to list transactions"):
        listed = await client.admin.list_transactions(
            longer_than_ms=arguments.duration_filter, pattern=arguments.transactional_id_pattern
        )
    return _table(
        _LIST_COLUMNS,
        [
            [listing.transactional_id, str(broker), str(listing.producer_id), listing.state]
            for broker, listings in listed.items()
            for listing in listings
        ],
    )


async def _describe(client: Client, transactional_id: str) -> list[str]:
    with _failing(f"Failed to describe transaction state of transactional-id `{transactional_id}`"):
        described = await client.admin.describe_transaction(transactional_id)
    start_ms, now_ms = described.start_ms, client.cluster.world.clock.now_ms()
    row = [
        str(described.coordinator_id),
        transactional_id,
        str(described.producer_id),
        str(described.producer_epoch),
        described.state,
        str(described.timeout_ms),
        _NONE if start_ms is None else str(start_ms),
        _NONE if start_ms is None else str(now_ms - start_ms),
        ",".join(map(str, sorted(described.partitions))),
    ]
    return _table(_DESCRIBE_COLUMNS, [row])


async def _describe_producers(client: Client, arguments: argparse.Namespace) -> list[str]:
    partition = TopicPartition(arguments.topic, arguments.partition)
    replica = "leader" if arguments.broker_id is None else f"broker {arguments.broker_id}"
    with _failing(f"Failed to describe producers for partition {partition} on {replica}"):
        producers = await client.admin.describe_producers([partition], arguments.broker_id)
    return _table(
        _PRODUCER_COLUMNS,
        [
            [
                str(producer.producer_id),
                str(producer.producer_epoch),
                str(-1 if producer.coordinator_epoch is None else producer.coordinator_epoch),
                str(producer.last_sequence),
                str(producer.last_timestamp),
                _NONE
                if producer.transaction_start_offset is None
                else str(producer.transaction_start_offset),
            ]
            for producer in producers[partition]
        ],
    )


async def _abort(client: Client, arguments: argparse.Namespace) -> list[str]:
    from penstock.client.admin.producers import AbortTransactionSpec

    partition = TopicPartition(arguments.topic, arguments.partition)
    if arguments.start_offset is not None:
        spec = await _open_transaction(client, partition, arguments.start_offset)
    else:
        # The coordinator epoch is -1 before the first marker; 0 is no newer than any real one.
        spec = AbortTransactionSpec(
            partition,
            arguments.producer_id,
            arguments.producer_epoch,
            max(arguments.coordinator_epoch, 0),
        )
    with _failing(f"Failed to abort transaction {spec}"):
        await client.admin.abort_transaction(spec)
    return []


async def _open_transaction(
    client: Client, partition: TopicPartition, start_offset: int
) -> AbortTransactionSpec:
    with _failing(f"Failed to validate producer state for partition {partition}"):
        spec = await client.admin.open_transaction_at(partition, start_offset)
    if spec is None:
        raise Refused(
            f"Could not find any open transactions starting at offset {start_offset} on partition "
            f"{partition}"
        )
    return spec


async def _find_hanging(client: Client, arguments: argparse.Namespace) -> list[str]:
    broker_id = arguments.broker_id
    topics = None if arguments.topic is None else [arguments.topic]
    with _failing(f"Failed to describe {1 if topics else 'all'} topics"):
        searched = [
            TopicPartition(topic.name, info.index)
            for topic in await client.admin.describe_topics(topics)
            for info in topic.partitions
            if broker_id is None or broker_id in info.replicas
        ]
    if arguments.partition is not None:
        searched = [TopicPartition(arguments.topic, arguments.partition)]
    replica = "Optional.empty" if broker_id is None else f"Optional[{broker_id}]"
    with _failing(
        f"Failed to describe producers for {len(searched)} partitions on broker {replica}"
    ):
        hanging = await client.admin.find_hanging_transactions(
            searched, max_timeout_min=arguments.max_transaction_timeout, broker_id=broker_id
        )
    now_ms = client.cluster.world.clock.now_ms()
    return _table(
        _HANGING_COLUMNS,
        [
            [
                found.partition.topic,
                str(found.partition.partition),
                str(producer.producer_id),
                str(producer.producer_epoch),
                str(-1 if producer.coordinator_epoch is None else producer.coordinator_epoch),
                str(producer.transaction_start_offset),
                str(producer.last_timestamp),
                str((now_ms - producer.last_timestamp) // _MINUTE_MS),
            ]
            for found in hanging
            for producer in [found.producer]
        ],
    )


@contextmanager
def _failing(reason: str) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(
            f"{reason}: {error.message}. Enable debug logging for additional detail."
        ) from error


def _table(heading: list[str], rows: list[list[str]]) -> list[str]:
    """Return lines as Kafka prints tables: every cell padded, and followed by a tab."""
    lines = [heading, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
