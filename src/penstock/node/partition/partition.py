"""One partition on this node: where the walks of produce and fetch meet, at the high watermark.

What counts towards the watermark and who is in sync is decided in `replica`; what is on disk is the
log's. Here the two are kept in step, and those who wait are told. A partition leads, or follows;
while its log is being cut back it does neither.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.log.admission_opened import Opening, open_in_child, opening_of
from penstock.log.log import Appended, Log
from penstock.metadata.image import PartitionState
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.follow import FollowingPartition
from penstock.node.partition.waiters import CommitWaiters
from penstock.replica.fencing import check_leader_epoch, check_replica, not_leader
from penstock.replica.follower import DivergingEpoch
from penstock.replica.leader import IsrProposal, Leader
from penstock.replica.read_replica import NO_REPLICA, replica_in_rack

logger = logging.getLogger(__name__)

__all__ = ["Appended", "Partition"]


class Partition(FollowingPartition):
    """Appends and roles are synchronous; only the wait for commit and cuts are awaited."""

    def __init__(self, log: Log, env: PartitionEnv, high_watermark: int = 0) -> None:
        super().__init__(log, env, high_watermark)
        self._leader: Leader | None = None
        self._syncing = False
        self._waiting = CommitWaiters(log.partition)
        # The last of the appends whose batches are opened elsewhere.
        self._opening: asyncio.Task[Appended] | None = None

    @property
    def config(self) -> LogConfig:
        return self._log.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._log.config = config
        if self._leader is not None:
            self._leader.set_min_insync(config.min_insync_replicas, self._now())
            self._after_leading()

    # Roles

    @property
    def is_leader(self) -> bool:
        return self._leader is not None

    @property
    def leader(self) -> Leader | None:
        """What is decided here while this node leads."""
        return self._leader

    def become(self, state: PartitionState) -> None:
        """As the controller decided. What is older than what is known here changes nothing."""
        known_epoch = (
            self._leader.partition_epoch
            if self._leader is not None
            else -1
            if self.state is None
            else self.state.partition_epoch
        )
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < known_epoch:
            return
        self.state = state
        self.leader_epoch = state.leader_epoch
        if state.leader == self._env.node_id and self._cut_done is None:
            self._lead(state)
        else:
            self._follow()
        self._notice_all()

    def _lead(self, state: PartitionState) -> None:
        log, now = self._log, self._now()
        if self._leader is not None and self._leader.epoch == state.leader_epoch:
            self._leader.apply(state, now)
            self._after_leading(self._leader.review(now))
        else:
            # Also without a record in it: a follower may have records of an epoch between the last
            # one here and this one (KIP-279).
            log.epochs.assign(state.leader_epoch, log.end_offset)
            self._leader = Leader(
                self._env.node_id,
                state,
                end_offset=log.end_offset,
                counted_end=log.flushing.recovery_point if self._must_sync() else log.end_offset,
                high_watermark=self.high_watermark,
                min_insync=self.config.min_insync_replicas,
                lag_max_s=self._env.lag_max_s,
                brokers=self._env.brokers,
                now=now,
            )
            self._sync_if_due()
            self._after_leading()

    def _follow(self) -> None:
        if self._leader is not None:
            self._leader = None
            self._waiting.fail(not_leader(self.topic_partition, self.leader_id))
        # An epoch that was begun here and got no record is nothing that the log could diverge by.
        self._log.epochs.truncate_from_end(self._log.end_offset)

    def check_leader(self, current_leader_epoch: int, *, allow_follower: bool = False) -> None:
        check_leader_epoch(self.topic_partition, current_leader_epoch, self.leader_epoch)
        if self._leader is None and not allow_follower:
            raise not_leader(self.topic_partition, self.leader_id)

    def check_follower(self, current_leader_epoch: int, replica_id: int, broker_epoch: int) -> None:
        """Only the brokers that are replicas, in their present life, may see what is not
        committed."""
        self.check_leader(current_leader_epoch)
        check_replica(self._env.brokers(), self._env.node_id, replica_id, broker_epoch)

    def _leading(self) -> Leader:
        if self._leader is None:
            raise not_leader(self.topic_partition, self.leader_id)
        return self._leader

    def _after_leading(self, proposal: IsrProposal | None = None) -> None:
        """Something happened to the leader's view: the watermark may have moved, or the replicas in
        sync may have to change."""
        leader = self._leading()
        if leader.high_watermark > self.high_watermark:
            self._commit(leader.high_watermark)
        if not leader.enough_in_sync:
            self._waiting.fail(self._too_few(leader, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        if proposal is not None:
            self._env.propose(self, proposal)

    def review(self) -> None:
        """Lets followers that fell behind out of the in-sync replicas, and those that caught up in.
        Called now and then, and when brokers change."""
        if self._leader is not None:
            self._after_leading(self._leader.review(self._now()))

    def isr_decided(
        self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int
    ) -> None:
        """The controller took the proposal. Metadata may have been faster."""
        if self._leader is not None and self._leader.pending is proposal:
            self._leader.decided(isr, partition_epoch, self._now())
            self._after_leading()

    def isr_refused(self, proposal: IsrProposal) -> None:
        """The controller did not take it, and never will. What it said of the partition still
        holds."""
        if self._leader is not None and self._leader.pending is proposal:
            self._leader.refused(self._now())
            self._after_leading()

    def is_proposing(self, proposal: IsrProposal) -> bool:
        return self._leader is not None and self._leader.pending is proposal

    def _too_few(self, leader: Leader, code: ErrorCode) -> KafkaError:
        in_sync = ",".join(map(str, leader.isr))
        message = (
            f"{self.topic_partition} has the in-sync replicas [{in_sync}], and "
            f"min.insync.replicas asks for {leader.min_insync}"
        )
        return KafkaError(code, message)

    # Produce

    def append_produced(
        self, records: Buffer, *, acks_all: bool = False
    ) -> Appended | asyncio.Task[Appended]:
        """A client's batch. Where the topic asks for a look inside, that may be taken elsewhere:
        then the append comes later, and those after it wait their turn."""
        opening = opening_of(self.config, self.topic_partition)
        before = None if self._opening is None or self._opening.done() else self._opening
        if opening is None and before is None:
            return self.append(records, acks_all=acks_all)
        self._leading()
        if before is None and opening is not None and opening.is_small(records):
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
        if opening is not None:
            try:
                # Shielded: a client that goes away must not end the child, which may be at other
                # work.
                work = asyncio.ensure_future(
                    self._world.offload.process(open_in_child, opening, records)
                )
                work.add_done_callback(lambda done: done.cancelled() or done.exception())
                opened = await asyncio.shield(work)
                records = records if opened is None else opened
            except ChildProcessError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"a batch for {self.topic_partition} was not opened: {error}",
                ) from error
        if before is not None:
            await asyncio.wait([before])
        return self.append(records, acks_all=acks_all)

    def append(self, records: Buffer, *, acks_all: bool = False) -> Appended:
        leader = self._leading()
        if acks_all and not leader.enough_in_sync:
            raise self._too_few(leader, ErrorCode.NOT_ENOUGH_REPLICAS)
        log = self._log
        appended = log.append_as_leader(records, leader.epoch)
        if appended.duplicate:
            return appended
        if self._must_sync():
            leader.appended(log.end_offset, leader.counted_end, self._now())
            self._sync_if_due()
        else:
            leader.appended(log.end_offset, log.end_offset, self._now())
        if leader.high_watermark > self.high_watermark:
            self._commit(leader.high_watermark)
        self._follower_watchers.notice()
        return appended

    def _sync_if_due(self) -> None:
        if self._must_sync() and not self._syncing:
            self._syncing = True
            self._env.spawn(self._count_synced())

    async def _count_synced(self) -> None:
        """Appends made meanwhile ride on the next sync. A failed one takes the directory offline,
        and those who wait are told."""
        try:
            while self._leader is not None and self._leader.counted_end < self._log.end_offset:
                await self._log.flushing.all()
                if self._leader is not None:
                    self._leader.counted(self._log.flushing.recovery_point, self._now())
                    self._after_leading()
        except KafkaError as error:
            self._waiting.fail(error)
        finally:
            self._syncing = False

    def is_committed(self, end_offset: int) -> bool:
        return end_offset <= self.high_watermark

    def wait_committed(self, end_offset: int, deadline: float) -> asyncio.Future[None]:
        """The deadline is in seconds of the loop's clock."""
        waiting = self._waiting.add(end_offset, deadline)
        if end_offset <= self.high_watermark:
            self._waiting.committed(self.high_watermark)
        elif self._leader is None:
            self._waiting.fail(not_leader(self.topic_partition, self.leader_id))
        return waiting

    def _commit(self, offset: int) -> None:
        super()._commit(offset)
        self._waiting.committed(offset)

    # Fetch

    def follower_fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        start_offset: int,
    ) -> DivergingEpoch | None:
        """A follower asks for what comes after what it has. Where that is not what is here, this
        says where they part; otherwise it counts. Who it is, and in which leader epoch, was checked
        before."""
        leader, log = self._leading(), self._log
        if replica_id not in leader.followers:
            message = (
                f"broker {replica_id} is no replica of {self.topic_partition} in leader "
                f"epoch {leader.epoch}"
            )
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        if offset < log.start_offset or (last_fetched_epoch < 0 and offset > log.end_offset):
            message = (
                f"offset {offset} of {self.topic_partition} is not in [{log.start_offset}, "
                f"{log.end_offset}]"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        diverging = self.diverging(offset, last_fetched_epoch)
        if diverging is None:
            proposal = leader.fetched(replica_id, broker_epoch, offset, start_offset, self._now())
            if proposal is not None or leader.high_watermark > self.high_watermark:
                self._after_leading(proposal)
        return diverging

    def preferred_replica(self, rack: str, offset: int) -> int:
        """Where a consumer in this rack should rather read; -1: here."""
        if self._leader is None:
            return NO_REPLICA
        return replica_in_rack(self._leader, self._env.node_id, rack, offset, self._env.brokers())

    # The rest

    @property
    def is_behind_epoch(self) -> bool:
        """Right after an election the watermark may lag behind what was committed: how far is not
        known yet (KIP-207)."""
        return self._leader is not None and self.high_watermark < self._leader.epoch_start

    def delete_records(self, before_offset: int) -> int:
        """-1 is everything that is committed. Gives the new start of the log."""
        self._leading()
        target = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= self.high_watermark:
            message = (
                f"records before {before_offset} of {self.topic_partition} cannot be "
                f"deleted: its high watermark is {self.high_watermark}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if self._log.advance_start(target):
            self._notice_all()
        return self.log_start_offset

    def abandon(self) -> None:
        """The partition is deleted: whoever waits is told."""
        self._leader = None
        self._waiting.fail(
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted")
        )
        self._notice_all()
