"""Transactional batches that wait for their verification (KIP-890), on the leader of a partition.

The first batch of a transaction waits until the transaction coordinator has confirmed that the
partition is part of the transaction. Later batches of the same producer queue behind it, so that
their order is kept. Nothing else waits: other producers, batches without a transaction, and
batches of transactions that are open in the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_ID, Buffer, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES
from penstock.log.log import Appended, Log
from penstock.log.producers.verification import VerificationGuard
from penstock.records.batch import BatchHeader, producer_of, read_header
from penstock.replica.fencing import not_leader

if TYPE_CHECKING:
    from penstock.node.partition.leader import LeaderRole
    from penstock.world import Clock

# (producer id, producer epoch) -> a future that completes when the coordinator has the partition in
# the producer's transaction, or fails with KafkaError.
Verify = Callable[[int, int], "asyncio.Future[None]"]

# A client of transaction.version 2 begins its next transaction before the markers of the last one
# are written. Its verification waits for them at the coordinator, so one more is enough; markers
# that a coordinator repeats may need others.
_MAX_VERIFICATIONS = 3


class VerifiedAppends:
    """Lasts as long as its leader role. Holds nothing while no batch waits."""

    def __init__(self, role: LeaderRole, log: Log, clock: Clock) -> None:
        self._role = role
        self._log = log
        self._clock = clock
        # The last append of each producer that has a batch waiting.
        self._last: dict[int, asyncio.Task[Appended]] = {}
        self._verifying: dict[asyncio.Future[None], None] = {}

    def append(
        self, records: Buffer, *, acks_all: bool, adds: bool, verify: Verify | None
    ) -> Appended | asyncio.Task[Appended]:
        """Append a client's transactional batch, in a task if it must wait. `adds` tells that the
        coordinator adds the partition to the transaction. Without `verify` the coordinator is not
        asked."""
        if len(records) < BATCH_HEADER_BYTES:
            return self._role.append_produced(records, acks_all=acks_all)  # refuses it
        producer_id, epoch = producer_of(records)
        before = self._last.get(producer_id)
        if before is None and (
            producer_id <= NO_PRODUCER_ID or self._log.producers.is_open(producer_id, epoch)
        ):
            return self._role.append_produced(records, acks_all=acks_all)
        header, guard = read_header(records), None
        if before is None:
            guard = self.begin(header, adds=adds)
            if verify is None and guard is not None and self.confirm(guard):
                return self._role.append_produced(records, acks_all=acks_all)
        waiting = self._wait_and_append(
            bytes(records), header, acks_all, adds, verify, before, guard
        )
        task = self._last[producer_id] = asyncio.create_task(waiting)
        task.add_done_callback(lambda done: self._ended(producer_id, done))
        return task

    def begin(self, header: BatchHeader, *, adds: bool) -> VerificationGuard | None:
        return self._log.producers.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            self._clock.now_ms(),
            adds=adds,
        )

    def confirm(self, guard: VerificationGuard) -> bool:
        return self._log.producers.confirm_verification(guard)

    def stop(self, error: KafkaError) -> None:
        """Fail the verifications: this node does not lead any more."""
        for verification in self._verifying:
            if not verification.done():
                verification.set_exception(error)

    def _ended(self, producer_id: int, task: asyncio.Task[Appended]) -> None:
        if self._last.get(producer_id) is task:
            del self._last[producer_id]
        if not task.cancelled():
            task.exception()  # the client may have disconnected: nobody else retrieves it

    async def _wait_and_append(
        self,
        records: bytes,
        header: BatchHeader,
        acks_all: bool,
        adds: bool,
        verify: Verify | None,
        before: asyncio.Task[Appended] | None,
        guard: VerificationGuard | None,
    ) -> Appended:
        if before is not None:
            await asyncio.wait([before])
            self._check_leads()
            guard = self.begin(header, adds=adds)
        tries = 1
        while guard is not None:
            # A batch behind one that was not verified fails here.
            guard.check_sequence(header.base_sequence, has_batches=True)
            if verify is not None:
                await self._verified(guard, verify)
            if self.confirm(guard):
                break
            if not adds or tries == _MAX_VERIFICATIONS:
                raise _ended_meanwhile(header, self._log.partition, adds)
            # The marker of the previous transaction has the epoch of this one. A marker of this
            # transaction would have a newer one, and `begin` refuses the batch.
            guard = self.begin(header, adds=adds)
            tries += 1
        appended = self._role.append_produced(records, acks_all=acks_all)
        return await appended if isinstance(appended, asyncio.Task) else appended

    async def _verified(self, guard: VerificationGuard, verify: Verify) -> None:
        verification = verify(guard.producer_id, guard.epoch)
        self._verifying[verification] = None
        try:
            await verification
        except KafkaError as error:
            if not error.code.retriable:
                self._log.producers.void_verification(guard)
            raise
        finally:
            self._verifying.pop(verification, None)
        self._check_leads()

    def _check_leads(self) -> None:
        if not self._role.is_current:
            partition = self._role.partition
            raise not_leader(partition.topic_partition, partition.leader_id)


def _ended_meanwhile(header: BatchHeader, partition: TopicPartition, adds: bool) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS if adds else ErrorCode.INVALID_TXN_STATE,
        f"the transaction of producer {header.producer_id}, epoch {header.producer_epoch}, ended "
        f"before its first batch was appended to {partition}",
    )
