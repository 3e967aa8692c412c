"""Offsets of transactions on the shards of __consumer_offsets: TxnOffsetCommit and the markers that
end it.

A TxnOffsetCommit is written only if the transaction's coordinator has the group's partition in the
transaction. Otherwise no marker would end it, and its offsets would be pending for ever (KIP-890).
A guard of the partition holds between the question and the append: a marker that comes in between
voids it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Never

from penstock.config.transaction_settings import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.node.partition.partition import Partition
from penstock.node.shards.replies import Refused, coordinator_error
from penstock.node.shards.shard_set import ShardEnv, ShardSet

if TYPE_CHECKING:
    from penstock.coordinator.groups.machine import GroupMachine
    from penstock.coordinator.groups.table import Caller
    from penstock.coordinator.runtime.step import Now, Step, Ticket
    from penstock.log.producers.verification import VerificationGuard
    from penstock.node.shards.verification import TxnVerifier
    from penstock.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )

# The client knows TRANSACTION_ABORTABLE from the first version on, and leaves it to the broker to
# add the partition to the transaction from the second (KIP-890).
_ABORTABLE_VERSION, _ADDS_PARTITIONS_VERSION = 4, 5
# Each but the first follows a marker. The client retries after CONCURRENT_TRANSACTIONS.
_MAX_VERIFICATIONS = 3


class TxnOffsets:
    def __init__(
        self, env: ShardEnv, shards: ShardSet[GroupMachine, Never], verifier: TxnVerifier
    ) -> None:
        self._env = env
        self._shards = shards
        self._verifier = verifier

    # TxnOffsetCommit

    def commit(
        self, request: TxnOffsetCommitRequest, caller: Caller
    ) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        """Commit offsets in a transaction. The coordinator is asked only if the partition has no
        record of the transaction yet."""
        # Imported on first use, as handlers are: a node must start quickly.
        from penstock.coordinator.groups import errors

        refused = partial(errors.txn_offset_commit, request, caller.version)
        adds = caller.version >= _ADDS_PARTITIONS_VERSION
        asks = adds or self._env.metadata.broker_config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            partition = self._shards.partition_for(request.group_id)
            guard = _begin(partition, request, caller)
            if guard is not None and not asks:
                partition.confirm_verification(guard)
        except KafkaError as error:
            return refused(coordinator_error(error))
        if guard is not None and asks:
            return self._verify_and_write(request, caller, partition, guard, refused)
        return self._write(request, caller, refused)

    async def _verify_and_write(
        self,
        request: TxnOffsetCommitRequest,
        caller: Caller,
        partition: Partition,
        guard: VerificationGuard,
        refused: Refused[TxnOffsetCommitResponse],
    ) -> TxnOffsetCommitResponse:
        try:
            await self._verify(request, caller, partition, guard)
        except KafkaError as error:
            return refused(coordinator_error(error))
        response = self._write(request, caller, refused)
        return await response if inspect.isawaitable(response) else response

    async def _verify(
        self,
        request: TxnOffsetCommitRequest,
        caller: Caller,
        partition: Partition,
        guard: VerificationGuard,
    ) -> None:
        """Return when the partition takes the batch; it must be appended in the same run.

        A marker voids the guard. A client of transaction version 2 begins its next transaction
        before the markers of the last one are written, so it is verified again; the marker of an
        older client's transaction shows that the request is late.
        """
        adds = caller.version >= _ADDS_PARTITIONS_VERSION
        for _attempt in range(_MAX_VERIFICATIONS if adds else 1):
            try:
                await self._verifier.verify(
                    request.transactional_id,
                    request.producer_id,
                    request.producer_epoch,
                    partition.topic_partition,
                    add=adds,
                    abortable=caller.version >= _ABORTABLE_VERSION,
                )
            except KafkaError as error:
                if not error.code.retriable:
                    partition.void_verification(guard)
                raise
            if partition.confirm_verification(guard):
                return
            again = _begin(partition, request, caller)
            if again is None:
                return
            guard = again
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS if adds else ErrorCode.INVALID_TXN_STATE,
            f"a transaction of producer {request.producer_id} ended in "
            f"{partition.topic_partition} while the next one was verified",
        )

    def _write(
        self,
        request: TxnOffsetCommitRequest,
        caller: Caller,
        refused: Refused[TxnOffsetCommitResponse],
    ) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.txn_offset_commit(request, caller, ticket, now),
            refused,
        )

    # Markers

    def write_marker(
        self,
        partition_index: int,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Awaitable[None] | None:
        """Append a marker; complete when it is committed. The pending offsets of the transaction
        are committed or dropped with it."""
        partition = self._env.partitions.get(TopicPartition(self._shards.topic, partition_index))

        def decide(machine: GroupMachine, ticket: Ticket, now: Now) -> Step[Never]:
            if partition is not None:
                partition.check_marker(
                    producer_id, producer_epoch, coordinator_epoch, transaction_version
                )
            return machine.write_marker(
                producer_id, producer_epoch, commit, coordinator_epoch, ticket, now
            )

        def refused(error: KafkaError) -> ErrorCode | KafkaError:
            return error

        written = self._shards.decide_at(partition_index, decide, refused)
        if inspect.isawaitable(written):
            return _when_written(written)
        _check_written(written)
        return None


def _begin(
    partition: Partition, request: TxnOffsetCommitRequest, caller: Caller
) -> VerificationGuard | None:
    """Return None if the transaction is open in the partition."""
    return partition.begin_verification(
        request.producer_id,
        request.producer_epoch,
        adds=caller.version >= _ADDS_PARTITIONS_VERSION,
    )


async def _when_written(written: Awaitable[ErrorCode | KafkaError]) -> None:
    _check_written(await written)


def _check_written(written: ErrorCode | KafkaError) -> None:
    """Raise the error of a marker that is not committed."""
    if isinstance(written, KafkaError):
        raise written
