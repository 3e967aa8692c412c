"""One partition on this node: a log, a high watermark and a role. Produce and fetch meet here.

A partition leads or follows (`LeaderRole`, `FollowerRole`). This class owns what both roles need:
the log, the high watermark, reads up to it, the callbacks of delayed fetches and the state that the
controller last decided on. `replica` has the rules of replication, and `log` the files.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple
from uuid import UUID

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_SEQUENCE, Buffer, TopicPartition
from penstock.limits import REFUSAL_REMEMBERED_S
from penstock.log.directory import LogDirectory
from penstock.log.files import FileRange
from penstock.log.leader_epochs import EpochEnd
from penstock.log.log import Appended, Log
from penstock.log.lookup import TimedOffset, offset_for_timestamp, offset_of_max_timestamp
from penstock.log.producers.state import Producer
from penstock.log.producers.verification import VerificationGuard
from penstock.metadata.image import NO_LEADER, PartitionState
from penstock.node.partition.counts import TopicTraffic
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.follower import FollowerRole
from penstock.node.partition.leader import LeaderRole
from penstock.node.partition.verified_appends import Verify
from penstock.node.partition.waiters import Reached, commit_future
from penstock.node.partition.watchers import Callback, Watchers
from penstock.replica.fencing import check_leader_epoch, check_replica, not_leader
from penstock.replica.follower import DivergingEpoch
from penstock.replica.leader import NO_REPLICA, Leader
from penstock.replica.throttle import ReplicaThrottle

__all__ = ["AbortedTransaction", "Appended", "Partition", "ReadResult"]


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class ReadResult(NamedTuple):
    """A range of a file, or None if there is nothing to read yet."""

    range: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]


class Partition:
    """Appends, reads and role changes are synchronous. Commit, truncation and lookups by timestamp
    are awaited."""

    # Slots: a scrape of the metrics looks at all partitions, of which a node may have 100,000.
    __slots__ = (
        "__weakref__",
        "_follower_watchers",
        "_refusal",
        "_traffic",
        "_watchers",
        "env",
        "high_watermark",
        "leader_epoch",
        "log",
        "role",
        "state",
    )

    def __init__(self, log: Log, env: PartitionEnv, high_watermark: int = 0) -> None:
        self.log = log
        self.env = env
        self.high_watermark = high_watermark
        self.clamp_high_watermark()
        log.producers.advance(self.high_watermark)
        self.state: PartitionState | None = None
        self.leader_epoch = -1
        # Readers up to the high watermark, and readers up to the log's end.
        self._watchers = Watchers(env.actions)
        self._follower_watchers = Watchers(env.actions)
        self.role: LeaderRole | FollowerRole = FollowerRole(self)
        # The last error for a batch that was refused and may be sent again, and its time. Not the
        # exception, whose traceback would keep the request's buffer.
        self._refusal: tuple[ErrorCode, str, float] | None = None
        # Set by the first traffic: most partitions of a node with many are idle.
        self._traffic: TopicTraffic | None = None

    @property
    def traffic(self) -> TopicTraffic:
        """The counts of the partition's topic."""
        traffic = self._traffic
        if traffic is None:
            traffic = self._traffic = self.env.counts.traffic_of(self.log.partition.topic)
        return traffic

    # Identity

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def topic_id(self) -> UUID:
        return self.log.topic_id

    @property
    def directory(self) -> LogDirectory:
        return self.log.directory

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.log.config = config
        if isinstance(self.role, LeaderRole):
            self.role.config_changed()

    # Offsets

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self.log.producers.unstable.first_offset
        if unstable is None:
            return self.high_watermark
        # DeleteRecords and retention may remove the beginning of an open transaction.
        return min(max(unstable, self.log.start_offset), self.high_watermark)

    @property
    def size(self) -> int:
        return self.log.size

    def is_committed(self, end_offset: int) -> bool:
        return end_offset <= self.high_watermark

    def must_sync(self) -> bool:
        """Return True if flush.messages requires a sync before the log's end counts as
        replicated."""
        log = self.log
        return log.end_offset - log.flushing.recovery_point >= log.config.flush_messages

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.env.marks.high_watermark_changed = True
        self.log.producers.unstable.advance(offset)
        self.notify_all()

    def clamp_high_watermark(self) -> None:
        """Bring the high watermark into the bounds of the log."""
        log = self.log
        self.high_watermark = max(min(self.high_watermark, log.end_offset), log.start_offset)

    # Leader epochs

    @property
    def earliest_epoch(self) -> int:
        """The leader epoch of the first record; -1 if there never was one."""
        return self.log.epochs.epoch_at(self.log.start_offset)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record: a follower sends it with its fetch."""
        return self.log.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    def diverging(self, offset: int, last_fetched_epoch: int) -> DivergingEpoch | None:
        """Return where the log of a fetching consumer or follower leaves this one; None if it does
        not, or if the fetch has no last fetched epoch (KIP-595)."""
        if last_fetched_epoch < 0:
            return None
        if last_fetched_epoch == self.log.epochs.latest and offset <= self.log.end_offset:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the last fetched epoch {last_fetched_epoch} is not in {self.topic_partition}",
            )
        if epoch < last_fetched_epoch or end_offset < offset:
            return DivergingEpoch(epoch, end_offset)
        return None

    # Roles

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, LeaderRole)

    @property
    def leader(self) -> Leader | None:
        """The replication state of the current leader epoch while this node leads."""
        return self.role.leader if isinstance(self.role, LeaderRole) else None

    @property
    def leader_id(self) -> int:
        return NO_LEADER if self.state is None else self.state.leader

    def become(self, state: PartitionState) -> None:
        """Take the role that the controller decided on. A state older than the current one is
        ignored."""
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self._partition_epoch:
            return
        self.state = state
        self.leader_epoch = state.leader_epoch
        role = self.role
        if state.leader == self.env.node_id and not self.is_truncating:
            if isinstance(role, LeaderRole):
                role.apply(state)
            else:
                self.role = LeaderRole(self, state)
                self.role.start()
        else:
            self._resign(not_leader(self.topic_partition, state.leader))
            # An epoch that began here and got no record must not count as a divergence.
            self.log.epochs.truncate_from_end(self.log.end_offset)
        self.notify_all()

    @property
    def _partition_epoch(self) -> int:
        if isinstance(self.role, LeaderRole):
            return self.role.leader.partition_epoch
        return -1 if self.state is None else self.state.partition_epoch

    def _resign(self, error: KafkaError) -> None:
        role = self.role
        if isinstance(role, LeaderRole):
            self.role = FollowerRole(self)
            # Batches that are not committed may be truncated before this broker leads again.
            self.refused(error)
            role.stop(error)

    def abandon(self, *, is_reassigned: bool = False) -> None:
        """The partition is deleted, or reassigned to other brokers: fail the requests that wait for
        it. Clients look for the leader of a reassigned one."""
        error = KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted"
        )
        if is_reassigned:
            error = KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} was reassigned to other brokers",
            )
        self._resign(error)
        self.notify_all()

    def _not_leader(self) -> KafkaError:
        return not_leader(self.topic_partition, self.leader_id)

    def _leader_role(self) -> LeaderRole:
        if isinstance(self.role, LeaderRole):
            return self.role
        raise self._not_leader()

    def _leader_to_append(self) -> LeaderRole:
        """Return the leader's role. If this broker does not lead, remember that it refused a
        batch: it may lead before the producer's next request is looked at."""
        if isinstance(self.role, LeaderRole):
            return self.role
        raise self.refused(self._not_leader())

    def refused(self, error: KafkaError) -> KafkaError:
        """Remember the refusal of a batch that the producer sends again."""
        self._refusal = (error.code, error.message, self.env.world.clock.monotonic())
        return error

    @property
    def has_refused_lately(self) -> bool:
        """True for some seconds after a batch was refused, or this broker ceased to lead."""
        return (
            self._refusal is not None
            and self.env.world.clock.monotonic() - self._refusal[2] <= REFUSAL_REMEMBERED_S
        )

    def after_refusal(self, out_of_order: KafkaError) -> KafkaError:
        """Return the error for a batch whose sequence is out of order.

        If a batch was refused a moment ago, this one was sent with it, and gets the same error: the
        producer sends both again, in order. OUT_OF_ORDER_SEQUENCE_NUMBER, which Kafka returns,
        makes librdkafka begin a new epoch and send all unacknowledged batches under it. A batch
        that the leader before had replicated without an acknowledgement would be there twice."""
        if self._refusal is None or not self.has_refused_lately:
            return out_of_order
        code, message, _at = self._refusal
        return KafkaError(
            code, f"{out_of_order.message}; an earlier batch was refused just before: {message}"
        )

    def check_leader(self, current_leader_epoch: int, *, allow_follower: bool = False) -> None:
        """Fence a request by its leader epoch (KIP-320)."""
        check_leader_epoch(self.topic_partition, current_leader_epoch, self.leader_epoch)
        if not allow_follower:
            self._leader_role()

    def check_follower(self, current_leader_epoch: int, replica_id: int, broker_epoch: int) -> None:
        """Fence a replica's fetch: only registered brokers, with their current broker epoch, may
        read uncommitted records."""
        self.check_leader(current_leader_epoch)
        check_replica(self.env.brokers(), self.env.node_id, replica_id, broker_epoch)

    # Leading

    def append_produced(
        self, records: Buffer, *, acks_all: bool = False
    ) -> Appended | asyncio.Task[Appended]:
        """Append a client's batch; in a task if the batch must be opened in the child process."""
        return self._leader_to_append().append_produced(records, acks_all=acks_all)

    def append(
        self, records: Buffer, *, acks_all: bool = False, from_client: bool = True
    ) -> Appended:
        """Append a batch. Batches of this node's coordinators may be markers, and have no
        sequence."""
        return self._leader_to_append().append(records, acks_all=acks_all, from_client=from_client)

    # Transactions

    def append_transactional(
        self, records: Buffer, *, acks_all: bool, adds: bool, verify: Verify | None
    ) -> Appended | asyncio.Task[Appended]:
        """Append a client's transactional batch. If it begins a transaction, `verify` asks the
        coordinator first, and the append happens in a task. Later batches of the producer queue
        behind it. `adds` tells that the coordinator adds the partition to the transaction."""
        return self._leader_to_append().append_transactional(
            records, acks_all=acks_all, adds=adds, verify=verify
        )

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int = NO_SEQUENCE,
        *,
        adds: bool,
    ) -> VerificationGuard | None:
        """Return the guard of a transaction that a coordinator of this node begins; None if the
        transaction is open here already."""
        self._leader_role()
        return self.log.producers.begin_verification(
            producer_id,
            producer_epoch,
            base_sequence,
            self.env.world.clock.now_ms(),
            adds=adds,
        )

    def confirm_verification(self, guard: VerificationGuard) -> bool:
        """Accept the first batch of the guard's transaction from now on. Return False if the guard
        is void: a marker ended the transaction, or this node ceased to lead, meanwhile."""
        self._leader_role()
        return self.log.producers.confirm_verification(guard)

    def void_verification(self, guard: VerificationGuard) -> None:
        """Forget a guard: the transaction's coordinator has refused the producer."""
        self.log.producers.void_verification(guard)

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Check a marker before it is appended. KafkaError if the producer or the coordinator is
        fenced."""
        self._leader_role()
        self.log.producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, transaction_version
        )

    def producers(self) -> list[tuple[int, Producer]]:
        """Return the state of each producer that this replica remembers."""
        return list(self.log.producers.producers.items())

    # Commit

    def wait_committed(self, end_offset: int, deadline: float) -> asyncio.Future[None]:
        """Return a future that completes when the high watermark reaches an offset. The deadline is
        in seconds of the loop's clock."""
        future, complete = commit_future()
        self._add_commit_waiter(end_offset, deadline, complete)
        return future

    def on_committed(self, end_offset: int, deadline: float, callback: Reached) -> None:
        """Call back when the high watermark reaches an offset, before the shell callback in which
        that happens returns. With an error at the deadline, or if this node stops to lead."""
        actions = self.env.actions
        self._add_commit_waiter(
            end_offset, deadline, lambda error: actions.add(partial(callback, error))
        )

    def _add_commit_waiter(self, end_offset: int, deadline: float, callback: Reached) -> None:
        if self.is_committed(end_offset):
            callback(None)
        elif isinstance(self.role, LeaderRole):
            self.role.add_commit_waiter(end_offset, deadline, callback)
        else:
            callback(self._not_leader())

    def delete_records(self, before_offset: int) -> int:
        """Delete the records before an offset, or all committed ones if it is -1. Return the offset
        that the low watermark is to reach. Followers delete theirs after their next fetch."""
        return self._leader_role().delete_records(before_offset)

    @property
    def low_watermark(self) -> int:
        """The offset before which all live replicas have deleted their records."""
        return self._leader_role().low_watermark

    def on_deleted(self, offset: int, deadline: float, callback: Reached) -> None:
        """Call back when the low watermark reaches an offset, as on_committed does."""
        actions = self.env.actions
        self._leader_role().add_deletion_waiter(
            offset, deadline, lambda error: actions.add(partial(callback, error))
        )

    def follower_fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        start_offset: int,
    ) -> DivergingEpoch | None:
        """Take a follower's fetch offset as its acknowledgement, or return where its log
        diverges."""
        return self._leader_role().follower_fetched(
            replica_id, broker_epoch, offset, last_fetched_epoch, start_offset
        )

    def is_throttled(self, throttle: ReplicaThrottle) -> bool:
        """Return True if this broker's replica is one that a throttle applies to (KIP-73)."""
        return throttle.applies(self.topic_partition, self.log.config, self.env.node_id)

    def is_throttled_for(self, throttle: ReplicaThrottle, replica_id: int) -> bool:
        """Return True if the leader's throttle applies to a follower: never if it is in sync."""
        leader = self.leader
        return leader is not None and replica_id not in leader.isr and self.is_throttled(throttle)

    def preferred_replica(self, rack: str, offset: int) -> int:
        """Return the replica that a consumer in a rack should fetch from; -1 is this one."""
        if isinstance(self.role, LeaderRole):
            return self.role.preferred_replica(rack, offset)
        return NO_REPLICA

    @property
    def is_behind_epoch(self) -> bool:
        """True while a new leader does not know yet how far its log is committed (KIP-207)."""
        leader = self.leader
        return leader is not None and self.high_watermark < leader.epoch_start

    def review(self) -> None:
        """Look for ISR changes; called periodically, and when brokers change."""
        if isinstance(self.role, LeaderRole):
            self.role.review()

    # Following

    @property
    def is_truncating(self) -> bool:
        return isinstance(self.role, FollowerRole) and self.role.is_truncating

    @property
    def is_ready_to_follow(self) -> bool:
        return isinstance(self.role, FollowerRole) and self.role.is_ready

    async def be_ready_to_follow(self) -> None:
        if isinstance(self.role, FollowerRole):
            await self.role.wait_ready()

    def append_fetched(self, records: Buffer, high_watermark: int, log_start_offset: int) -> bool:
        """Append what the leader sent. Return True if it must be synced before the next fetch."""
        if not isinstance(self.role, FollowerRole):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker leads {self.topic_partition}"
            )
        return self.role.append_fetched(records, high_watermark, log_start_offset)

    async def sync(self) -> None:
        await self.log.flushing.all()

    async def truncate(self, leader_epoch: int, diverging: DivergingEpoch) -> None:
        if isinstance(self.role, FollowerRole):
            await self.role.truncate(leader_epoch, diverging)

    async def restart(self, leader_epoch: int, offset: int, records: Buffer = b"") -> None:
        if isinstance(self.role, FollowerRole):
            await self.role.restart(leader_epoch, offset, records)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed_only: bool,
        at_least_one: bool = True,
        at_once: bool = False,
    ) -> ReadResult:
        """Read for a consumer: nothing above the high watermark. With at_once, raises NotInMemory
        instead of blocking on the disk."""
        log = self.log
        stable = self.last_stable_offset
        bound = stable if committed_only else self.high_watermark
        if offset == bound >= log.start_offset:
            return ReadResult(None, self.high_watermark, stable, log.start_offset, [])
        found = log.read(offset, max_bytes, below=bound, at_least_one=at_least_one, at_once=at_once)
        aborted: list[AbortedTransaction] = []
        if committed_only and found is not None:
            aborted = [
                AbortedTransaction(txn.producer_id, txn.first_offset)
                for txn in log.aborted_in(offset, found, bound)
            ]
        return ReadResult(found, self.high_watermark, stable, log.start_offset, aborted)

    def look(self) -> ReadResult:
        """Return the partition's offsets without reading."""
        return ReadResult(
            None, self.high_watermark, self.last_stable_offset, self.log_start_offset, []
        )

    def read_for_follower(
        self, offset: int, max_bytes: int, *, at_least_one: bool, at_once: bool = False
    ) -> ReadResult:
        """Read for a replica that `follower_fetched` accepted: up to the log's end."""
        log = self.log
        found = None
        if offset != log.end_offset:
            found = log.read(
                offset, max_bytes, below=log.end_offset, at_least_one=at_least_one, at_once=at_once
            )
        return ReadResult(found, self.high_watermark, self.high_watermark, log.start_offset, [])

    async def offset_for_timestamp(self, timestamp: int) -> TimedOffset | None:
        return await offset_for_timestamp(self.log, self.env.world, timestamp)

    async def offset_of_max_timestamp(self) -> TimedOffset | None:
        return await offset_of_max_timestamp(self.log, self.env.world)

    # Notification

    def on_change(self, callback: Callback) -> None:
        """Call back after the high watermark, the log start or the role changed; once per shell
        callback, before it returns."""
        self._watchers.add(callback)

    def on_growth(self, callback: Callback) -> None:
        """Call back as on_change does, and after the log's end moved."""
        self._follower_watchers.add(callback)

    def off_change(self, callback: Callback) -> None:
        self._watchers.remove(callback)
        self._follower_watchers.remove(callback)

    def notify_growth(self) -> None:
        self._follower_watchers.notify()

    def notify_all(self) -> None:
        self._watchers.notify()
        self._follower_watchers.notify()
