"""Transactional batches of Produce requests: which requests are refused as a whole, what the
coordinator is asked, and the errors that producers of each version expect."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.config.transaction_settings import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_ID, Buffer
from penstock.limits import BATCH_HEADER_BYTES
from penstock.protocol.messages.produce import ProduceRequest
from penstock.records.batch import TRANSACTIONAL_BIT, producer_of

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Appended, Partition
    from penstock.node.shards.verification import TxnVerifier

_ALL_ACKS = -1
_ABORTABLE_SINCE = 11
_ADDS_PARTITIONS_SINCE = 12
# The position of the low byte of a batch's attributes: its codec, and whether it is transactional.
_ATTRIBUTES_AT = 22
# Errors of a verification that producers do not know in a produce response.
_UNVERIFIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Parts(Protocol):
    metadata: MetadataView
    verifier: TxnVerifier


def attributes_of(records: Buffer | None) -> int:
    """Return the low byte of the attributes of the first batch; 0 if there is none."""
    return records[_ATTRIBUTES_AT] if records and len(records) > _ATTRIBUTES_AT else 0


def has_transaction(request: ProduceRequest) -> bool:
    """Return True if a batch is transactional. This is all that other requests pay."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) > _ATTRIBUTES_AT
                and records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
            ):
                return True
    return False


def refusal_of(request: ProduceRequest) -> KafkaError | None:
    """Return the error of a transactional request of which nothing may be appended."""
    if request.transactional_id is None:
        return KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a produce request with transactional batches needs a transactional id",
        )
    producers = {
        producer_of(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records
        and len(data.records) >= BATCH_HEADER_BYTES
        and data.records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
    }
    if len({producer for producer in producers if producer[0] > NO_PRODUCER_ID}) > 1:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "the transactional batches of a produce request have several producer ids or epochs",
        )
    return None


def append_transactional(
    parts: Parts, request: ProduceRequest, version: int, partition: Partition, records: Buffer
) -> Appended | asyncio.Task[Appended]:
    """Append a transactional batch, in a task if the coordinator must be asked first."""
    adds = version >= _ADDS_PARTITIONS_SINCE
    verify = None
    if adds or parts.metadata.broker_config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]:
        verify = partial(
            parts.verifier.verify,
            request.transactional_id or "",
            partition=partition.topic_partition,
            add=adds,
            abortable=version >= _ABORTABLE_SINCE,
        )
    return partition.append_transactional(
        records, acks_all=request.acks == _ALL_ACKS, adds=adds, verify=verify
    )


def for_producer(error: KafkaError, version: int) -> KafkaError:
    """Return an error as producers expect it. If the coordinator cannot answer, that is
    NOT_ENOUGH_REPLICAS: all of them retry it, and without new metadata. CONCURRENT_TRANSACTIONS is
    common while a transaction completes; only clients that add partitions implicitly know it."""
    if error.code in _UNVERIFIED or (
        error.code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS_SINCE
    ):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the transaction could not be verified: {error.code.name}: {error.message}",
        )
    return error
