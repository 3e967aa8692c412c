"""Requests of a transactional producer to its coordinators, retried until they are answered.

A request that is not to be retried raises AbortableTransactionError or FatalTransactionError.
One that could not be sent within the time limit raises KafkaError REQUEST_TIMED_OUT, and may be
repeated: every request of this protocol is idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.client.admin.groups import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import Backoff, check
from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.transaction_state import add_partitions_error, coordinator_error
from penstock.client.routing import Coordinators, CoordinatorType, by_topic
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.apis import find_api
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Topic,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

# AddPartitionsToTxn v4 is for brokers only.
_ADD_PARTITIONS_MAX_VERSION = 3
# The next versions belong to transaction.version 2 (KIP-890).
_END_TXN_MAX_VERSION_V1 = 4
_TXN_OFFSET_COMMIT_MAX_VERSION_V1 = 4
_INIT_PRODUCER_ID_KEY = 22
_TWO_PHASE_COMMIT_VERSION = 6
# The coordinator is still writing the markers of the previous transaction, which takes a moment.
CONCURRENT_TRANSACTIONS_BACKOFF_S = 0.02
_TRANSACTION_VERSION = "transaction.version"
_TRANSACTION_V2 = 2


def is_transaction_v2(cluster: Cluster) -> bool:
    """Return whether leaders add their partitions to transactions (KIP-890)."""
    return cluster.finalized_feature(_TRANSACTION_VERSION) >= _TRANSACTION_V2


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """`producer` is the producer id and epoch that the transactional id is expected to have
    (KIP-360); NO_PRODUCER expects none."""

    transactional_id: str
    timeout_ms: int
    two_phase_commit: bool
    max_block_s: float
    producer: ProducerIdAndEpoch = NO_PRODUCER


class TransactionRequests:
    def __init__(self, cluster: Cluster, config: TransactionConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._id = config.transactional_id
        self._transactions = Coordinators(cluster, CoordinatorType.TRANSACTION)
        self._groups = Coordinators(cluster, CoordinatorType.GROUP)

    async def init_producer_id(
        self, expected: ProducerIdAndEpoch, *, keep_prepared: bool = False
    ) -> tuple[ProducerIdAndEpoch, ProducerIdAndEpoch]:
        """Return the producer id and epoch, and those of a prepared transaction or NO_PRODUCER."""
        two_phase = self._config.two_phase_commit
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._config.timeout_ms,
            producer_id=expected.id,
            producer_epoch=expected.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )

        async def send(
            connection: Connection,
        ) -> tuple[ProducerIdAndEpoch, ProducerIdAndEpoch]:
            if two_phase:
                _require_two_phase_commit(connection)
            response = await connection.call(request, InitProducerIdResponse, unstable=two_phase)
            check(response.error_code, f"InitProducerId failed for transactional id {self._id}")
            return (
                ProducerIdAndEpoch(response.producer_id, response.producer_epoch),
                ProducerIdAndEpoch(
                    response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch
                ),
            )

        return await self._retry("InitProducerId", lambda: self._to_coordinator(send))

    async def add_partitions(
        self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=tuple(
                Topic(name=topic, partitions=tuple(indexes))
                for topic, indexes in by_topic(partitions).items()
            ),
        )

        async def send(connection: Connection) -> None:
            response = await connection.call(
                request, AddPartitionsToTxnResponse, max_version=_ADD_PARTITIONS_MAX_VERSION
            )
            errors = {
                TopicPartition(topic.name, result.partition_index): result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            }
            # OPERATION_NOT_ATTEMPTED is the result of the partitions beside a refused one.
            for partition, code in sorted(
                errors.items(), key=lambda item: item[1] == ErrorCode.OPERATION_NOT_ATTEMPTED
            ):
                check(code, f"{partition} was not added to the transaction of {self._id}")

        await self._retry(
            "AddPartitionsToTxn", lambda: self._to_coordinator(send), add_partitions_error
        )

    async def add_offsets(self, producer: ProducerIdAndEpoch, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )

        async def send(connection: Connection) -> None:
            response = await connection.call(request, AddOffsetsToTxnResponse)
            check(
                response.error_code,
                f"the offsets of group {group_id} were not added to the transaction of {self._id}",
            )

        await self._retry("AddOffsetsToTxn", lambda: self._to_coordinator(send))

    async def commit_offsets(
        self,
        producer: ProducerIdAndEpoch,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        member: ConsumerGroupMetadata,
        *,
        is_v2: bool,
    ) -> None:
        """Store a group's offsets as part of the transaction; partitions with a retriable error
        are sent again."""
        pending = dict(offsets)

        async def send(connection: Connection) -> None:
            request = TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                topics=_offset_topics(pending),
            )
            response = await connection.call(
                request,
                TxnOffsetCommitResponse,
                max_version=None if is_v2 else _TXN_OFFSET_COMMIT_MAX_VERSION_V1,
            )
            failed: list[tuple[TopicPartition, int]] = []
            for topic in response.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    if result.error_code:
                        failed.append((partition, result.error_code))
                    else:
                        pending.pop(partition, None)
            for partition, code in sorted(failed, key=lambda item: _is_retriable(item[1])):
                check(code, f"the offset of group {group_id} in {partition} was not committed")

        await self._retry("TxnOffsetCommit", lambda: self._groups.send_once(group_id, send))

    async def end(
        self, producer: ProducerIdAndEpoch, *, commit: bool, is_v2: bool
    ) -> ProducerIdAndEpoch | None:
        """End the transaction; return the producer id and epoch of the next one, if they change."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )

        async def send(connection: Connection) -> ProducerIdAndEpoch | None:
            response = await connection.call(
                request,
                EndTxnResponse,
                max_version=None if is_v2 else _END_TXN_MAX_VERSION_V1,
            )
            verb = "committed" if commit else "aborted"
            check(response.error_code, f"the transaction of {self._id} was not {verb}")
            following = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return None if following.id < 0 else following

        return await self._retry("EndTxn", lambda: self._to_coordinator(send))

    async def _to_coordinator(self, send: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._transactions.send_once(self._id, send)

    async def _retry(
        self,
        name: str,
        attempt: Callable[[], Awaitable[T]],
        classify: Callable[[KafkaError], KafkaError] = coordinator_error,
    ) -> T:
        now = self._cluster.world.clock.monotonic
        deadline = now() + self._config.max_block_s
        backoff = Backoff(self._cluster.world.rng)
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.code.retriable:
                    raise classify(error) from error
                wait_s = (
                    CONCURRENT_TRANSACTIONS_BACKOFF_S
                    if error.code is ErrorCode.CONCURRENT_TRANSACTIONS
                    else backoff.next_s()
                )
                if now() + wait_s > deadline:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{name} of transactional id {self._id} did not succeed within "
                        f"{self._config.max_block_s:g} s; last error: {error}",
                    ) from error
            await asyncio.sleep(wait_s)


def _require_two_phase_commit(connection: Connection) -> None:
    supported = connection.broker_versions.get(_INIT_PRODUCER_ID_KEY)
    if supported is None or supported.last < _TWO_PHASE_COMMIT_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{connection.address} does not support {find_api(_INIT_PRODUCER_ID_KEY).name} version "
            f"{_TWO_PHASE_COMMIT_VERSION}: set transaction.two.phase.commit.enable=true on the "
            "brokers",
        )


def _is_retriable(code: int) -> bool:
    return code in list(ErrorCode) and ErrorCode(code).retriable


def _offset_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> tuple[TxnOffsetCommitRequest.Topic, ...]:
    part = TxnOffsetCommitRequest.Topic.Partition
    return tuple(
        TxnOffsetCommitRequest.Topic(
            name=topic,
            partitions=tuple(
                part(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
                for index in indexes
                for committed in [offsets[TopicPartition(topic, index)]]
            ),
        )
        for topic, indexes in by_topic(offsets).items()
    )
