"""A partition's role while this node leads it: produce, commit waiting, followers' fetches, ISR
changes.

`replica.leader.Leader` decides how far the high watermark moves and which replicas are in sync.
This class keeps it in step with the log, and completes the futures of produce requests.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.log.admission import Opening, open_in_child, opening_of
from penstock.log.log import Appended
from penstock.metadata.image import PartitionState
from penstock.node.partition.verified_appends import VerifiedAppends, Verify
from penstock.node.partition.waiters import OffsetWaiters, Reached
from penstock.replica.fencing import not_leader
from penstock.replica.follower import DivergingEpoch
from penstock.replica.leader import IsrProposal, Leader

if TYPE_CHECKING:
    from penstock.node.partition.partition import Partition


class LeaderRole:
    """Lasts as long as this node leads, over several leader epochs if it is elected again; `leader`
    is the state of the current epoch.

    Appends are synchronous. Only the wait for commit is awaited.
    """

    __slots__ = (
        "_deletions",
        "_env",
        "_is_reviewed",
        "_log",
        "_now",
        "_opening",
        "_syncing",
        "_verified",
        "_waiters",
        "leader",
        "partition",
    )

    def __init__(self, partition: Partition, state: PartitionState) -> None:
        self.partition = partition
        self._log = partition.log
        self._env = partition.env
        self._now = partition.env.world.clock.monotonic
        self._waiters = OffsetWaiters(
            partition.topic_partition, "not committed before the deadline"
        )
        # DeleteRecords requests that wait for followers. There are none on most partitions.
        self._deletions: OffsetWaiters | None = None
        self._syncing = False
        # The last append whose batch is opened in the child process: later appends wait for it.
        self._opening: asyncio.Task[Appended] | None = None
        # Made for the first transactional batch: most partitions have none.
        self._verified: VerifiedAppends | None = None
        # Whether periodic reviews look at this leader.
        self._is_reviewed = False
        self.leader = self._new_epoch(state)

    @property
    def is_current(self) -> bool:
        return self.partition.role is self

    # Epochs

    def _new_epoch(self, state: PartitionState) -> Leader:
        log = self._log
        # Assigned even if no record follows: a follower may have records of an epoch between the
        # last one of this log and the new one (KIP-279).
        log.epochs.assign(state.leader_epoch, log.end_offset)
        return Leader(
            self._env.node_id,
            state,
            end_offset=log.end_offset,
            counted_end=(
                log.flushing.recovery_point if self.partition.must_sync() else log.end_offset
            ),
            high_watermark=self.partition.high_watermark,
            min_insync=log.config.min_insync_replicas,
            lag_max_s=self._env.lag_max_s,
            brokers=self._env.brokers,
            now=self._now(),
        )

    def start(self) -> None:
        """Act on the state of a new epoch; called when the partition has this role."""
        self._review_later()
        self._sync_if_due()
        self._leader_changed()

    def apply(self, state: PartitionState) -> None:
        """Apply a state of the controller that has this node as the leader."""
        before = len(self.leader.isr)
        if state.leader_epoch == self.leader.epoch:
            self.leader.apply(state, self._now())
            self._env.counts.isr_changed(before, len(self.leader.isr))
            self.review()
        else:
            self.leader = self._new_epoch(state)
            self._env.counts.isr_changed(before, len(self.leader.isr))
            self.start()

    def stop(self, error: KafkaError) -> None:
        """Fail the requests that wait for followers or for a transaction coordinator; called when
        the role has ended."""
        self._env.marks.reviews.pop(self, None)
        self._waiters.fail(error)
        self._log.producers.void_verifications()
        if self._verified is not None:
            self._verified.stop(error)
        if self._deletions is not None:
            self._deletions.fail(error)

    def config_changed(self) -> None:
        was_enough = self.leader.enough_in_sync
        self.leader.set_min_insync(self._log.config.min_insync_replicas, self._now())
        self._leader_changed()
        if self.leader.enough_in_sync != was_enough:
            # A shard that loads waits for it.
            self.partition.notify_all()

    def _leader_changed(self, proposal: IsrProposal | None = None) -> None:
        """Follow a change of the leader's state: advance the high watermark, fail waiters if too
        few replicas are in sync, send an ISR proposal."""
        self._advance_high_watermark()
        if self._deletions is not None:
            self._advance_low_watermark(self._deletions)
        if not self.leader.enough_in_sync:
            self._waiters.fail(self._too_few_in_sync(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        if proposal is not None:
            self._env.propose(self, proposal)

    def _advance_high_watermark(self) -> None:
        offset = self.leader.high_watermark
        if offset > self.partition.high_watermark:
            self.partition.advance_high_watermark(offset)
            self._waiters.reached(offset)

    def _advance_low_watermark(self, deletions: OffsetWaiters) -> None:
        deletions.reached(self.low_watermark)
        if not deletions:
            self._deletions = None

    # In-sync replicas

    def review(self) -> None:
        """Propose to remove followers that fell behind from the ISR, and to add those that caught
        up. Review again later if time alone may change that."""
        now = self._now()
        self._leader_changed(self.leader.review(now))
        if self.is_current and self.leader.needs_review(now):
            self._review_later()
        else:
            self._is_reviewed = False
            self._env.marks.reviews.pop(self, None)

    def _review_later(self) -> None:
        self._is_reviewed = True
        self._env.marks.reviews[self] = None

    def is_proposing(self, proposal: IsrProposal) -> bool:
        return self.is_current and self.leader.pending is proposal

    def isr_decided(
        self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int
    ) -> None:
        """The controller accepted the proposal. The metadata log may have brought it first."""
        if self.is_proposing(proposal):
            before = len(self.leader.isr)
            self.leader.decided(isr, partition_epoch, self._now())
            self._env.counts.isr_changed(before, len(self.leader.isr))
            self._review_later()
            self._leader_changed()

    def isr_refused(self, proposal: IsrProposal) -> None:
        """The controller refused the proposal for good; the ISR is unchanged."""
        if self.is_proposing(proposal):
            self._env.counts.isr_updates_failed += 1
            self.leader.refused(self._now())
            self._review_later()
            self._leader_changed()

    def _too_few_in_sync(self, code: ErrorCode) -> KafkaError:
        in_sync = ",".join(map(str, self.leader.isr))
        message = (
            f"{self.partition.topic_partition} has the in-sync replicas [{in_sync}], and "
            f"min.insync.replicas asks for {self.leader.min_insync}"
        )
        return KafkaError(code, message)

    # Produce

    def append_produced(
        self, records: Buffer, *, acks_all: bool
    ) -> Appended | asyncio.Task[Appended]:
        """Append a client's batch.

        Where the topic's settings require it, the batch is opened first; a large one in the child
        process. The append then happens in a task, and later appends queue behind it.
        """
        config = self._log.config
        if self._opening is None and not config.opens_batches:
            return self.append(records, acks_all=acks_all)
        opening = opening_of(config, self.partition.topic_partition)
        before = None if self._opening is None or self._opening.done() else self._opening
        if before is None:
            if opening is None:
                return self.append(records, acks_all=acks_all)
            if opening.is_small(records):
                return self.append(opening.of(records), acks_all=acks_all)
        self._opening = asyncio.create_task(
            self._open_and_append(bytes(records), opening, acks_all, before)
        )
        return self._opening

    async def _open_and_append(
        self,
        records: bytes,
        opening: Opening | None,
        acks_all: bool,
        before: asyncio.Task[Appended] | None,
    ) -> Appended:
        partition = self.partition
        if opening is not None:
            try:
                # Shielded: a client that disconnects must not end the child process, which other
                # work may use.
                work = asyncio.ensure_future(
                    self._env.world.offload.process(open_in_child, opening, records)
                )
                work.add_done_callback(lambda done: done.cancelled() or done.exception())
                opened = await asyncio.shield(work)
                records = records if opened is None else opened
            except OSError as error:  # the child died, or could not be started
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"a batch for {partition.topic_partition} was not opened: {error}",
                ) from error
        if before is not None:
            await asyncio.wait([before])
        if not self.is_current:
            raise partition.refused(not_leader(partition.topic_partition, partition.leader_id))
        return self.append(records, acks_all=acks_all)

    def append_transactional(
        self, records: Buffer, *, acks_all: bool, adds: bool, verify: Verify | None
    ) -> Appended | asyncio.Task[Appended]:
        """Append a client's transactional batch; the first one of a transaction after its
        verification."""
        if self._verified is None:
            self._verified = VerifiedAppends(self, self._log, self._env.world.clock)
        return self._verified.append(records, acks_all=acks_all, adds=adds, verify=verify)

    def append(self, records: Buffer, *, acks_all: bool, from_client: bool = True) -> Appended:
        leader = self.leader
        if acks_all and not leader.enough_in_sync:
            raise self.partition.refused(self._too_few_in_sync(ErrorCode.NOT_ENOUGH_REPLICAS))
        log = self._log
        try:
            appended = log.append_as_leader(
                records,
                leader.epoch,
                from_client=from_client,
                only_verified=True,
                from_the_first=self.partition.has_refused_lately,
            )
        except KafkaError as error:
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise self.partition.after_refusal(error) from None
            raise
        if appended.duplicate:
            return appended
        traffic = self.partition.traffic
        traffic.bytes_in += len(records)
        traffic.messages_in += appended.end_offset - appended.base_offset
        if self.partition.must_sync():
            leader.appended(log.end_offset, leader.counted_end, self._now())
            self._sync_if_due()
        else:
            leader.appended(log.end_offset, log.end_offset, self._now())
        if not self._is_reviewed:
            self._review_later()
        self._advance_high_watermark()
        self.partition.notify_growth()
        return appended

    def _sync_if_due(self) -> None:
        if self.partition.must_sync() and not self._syncing:
            self._syncing = True
            self._env.spawn(self._sync())

    async def _sync(self) -> None:
        """Sync the log until all of it counts; appends made during a sync are part of the next
        one. A failed sync takes the log directory offline and fails the waiters."""
        try:
            while self.is_current and self.leader.counted_end < self._log.end_offset:
                await self._log.flushing.all()
                if self.is_current:
                    self.leader.counted(self._log.flushing.recovery_point, self._now())
                    self._leader_changed()
        except KafkaError as error:
            self._waiters.fail(error)
        finally:
            self._syncing = False

    @property
    def waiting_count(self) -> int:
        """The number of produce requests that wait for followers."""
        return len(self._waiters)

    def add_commit_waiter(self, end_offset: int, deadline: float, callback: Reached) -> None:
        self._waiters.add(end_offset, deadline, callback)

    @property
    def low_watermark(self) -> int:
        """The offset before which all live replicas have deleted their records."""
        return self.leader.low_watermark(self._log.start_offset)

    def add_deletion_waiter(self, offset: int, deadline: float, callback: Reached) -> None:
        if self._deletions is None:
            self._deletions = OffsetWaiters(
                self.partition.topic_partition,
                "not all replicas deleted the records before the deadline",
            )
        self._deletions.add(offset, deadline, callback)

    def delete_records(self, before_offset: int) -> int:
        """Move the log start; -1 deletes everything that is committed. Return the offset that the
        low watermark is to reach."""
        partition = self.partition
        target = partition.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= partition.high_watermark:
            message = (
                f"records before {before_offset} of {partition.topic_partition} cannot be "
                f"deleted: its high watermark is {partition.high_watermark}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if self._log.advance_start(target):
            partition.notify_all()
        return target

    # Fetch

    def follower_fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        start_offset: int,
    ) -> DivergingEpoch | None:
        """Take a follower's fetch offset as its acknowledgement, or return where its log diverges.

        The caller has checked the leader epoch and the broker.
        """
        leader, log, partition = self.leader, self._log, self.partition
        if replica_id not in leader.followers:
            message = (
                f"broker {replica_id} is no replica of {partition.topic_partition} in leader "
                f"epoch {leader.epoch}"
            )
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        if offset < log.start_offset or (last_fetched_epoch < 0 and offset > log.end_offset):
            message = (
                f"offset {offset} of {partition.topic_partition} is not in [{log.start_offset}, "
                f"{log.end_offset}]"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        diverging = partition.diverging(offset, last_fetched_epoch)
        if diverging is None:
            proposal = leader.fetched(replica_id, broker_epoch, offset, start_offset, self._now())
            if leader.has_out_of_sync and not self._is_reviewed:
                self._review_later()
            if proposal is not None or leader.high_watermark > partition.high_watermark:
                self._leader_changed(proposal)
            if self._deletions is not None:
                self._advance_low_watermark(self._deletions)
        return diverging

    def preferred_replica(self, rack: str, offset: int) -> int:
        return self.leader.preferred_read_replica(rack, offset)
