"""A broker of the replica explorer: product code of `node.partition` and `replica` on a log in
memory, and what the rest of a broker does around it.

The broker registers, replays the metadata up to its registration, opens its partition and is
unfenced, as `node.node` does. It fetches as `node.replication.replica_fetcher` does.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import PartitionState
from penstock.node.delayed import ActionQueue
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.leader import LeaderRole
from penstock.node.partition.partition import Partition
from penstock.replica.follower import DivergingEpoch
from penstock.replica.leader import IsrProposal, Leader
from penstock.sim.explore.replica_log import (
    PARTITION,
    Entry,
    MemoryPartitionLog,
    MemoryStore,
)

if TYPE_CHECKING:
    from penstock.sim.explore.replica import ReplicaWalk

LAG_MAX_S = 10.0


class FetchRequest(NamedTuple):
    broker: int
    life: int
    leader: int
    leader_epoch: int
    broker_epoch: int
    offset: int
    last_fetched_epoch: int
    start_offset: int
    number: int


class FetchResponse(NamedTuple):
    request: FetchRequest
    error: ErrorCode = ErrorCode.NONE
    diverging: DivergingEpoch | None = None
    records: tuple[Entry, ...] = ()
    high_watermark: int = -1
    start_offset: int = -1


class Proposal(NamedTuple):
    """An AlterPartition request of a leader."""

    broker: int
    life: int
    role: LeaderRole
    proposal: IsrProposal


class ExploredBroker:
    def __init__(self, walk: ReplicaWalk, broker_id: int, log: MemoryPartitionLog) -> None:
        self._walk = walk
        self.id = broker_id
        # On disk.
        self.log = log
        self.saved_high_watermark = 0
        self.clean_epoch = -1
        # The process.
        self.is_running = False
        self.life = 0
        self.now = 0.0
        self.incarnation = UUID(int=0)
        self.epoch = -1
        # How many images of the metadata log the broker has applied.
        self.applied = 0
        # True when the broker has opened its replica, or knows that it has none.
        self.is_open = False
        # The last leader epoch in which the broker dropped its replica.
        self.dropped_in = -1
        self.partition: Partition | None = None
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.fetch: FetchRequest | None = None
        # True from a power loss until the controller knows that the broker restarted.
        self.has_lost_power = False
        self._leader: Leader | None = None
        self._leader_high_watermark = self._high_watermark = self._end_offset = 0

    @property
    def is_leader(self) -> bool:
        return self.partition is not None and self.partition.is_leader

    # The process

    def start(self, applied: int) -> None:
        """Start a process, which has applied so many images."""
        self.is_running = True
        self.life += 1
        self.incarnation = self._walk.new_uuid()
        self.applied = applied
        self.epoch = -1

    def open(self) -> None:
        """Open the partition with the metadata that the broker has applied."""
        self.is_open = True
        state = self._walk.state_at(self.applied - 1)
        if self.id in state.replicas:
            self._create_partition()
        else:
            self._drop_replica(state)

    def _drop_replica(self, state: PartitionState) -> None:
        """The partition was reassigned to other brokers: delete its log."""
        partition, self.partition = self.partition, None
        if partition is not None:
            partition.abandon(is_reassigned=True)
        self.log = self._walk.new_log()
        self.saved_high_watermark = 0
        self.dropped_in = state.leader_epoch
        self.fetch = None
        self.close_tasks()

    def _create_partition(self) -> None:
        walk, log = self._walk, self.log
        world: Any = SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: self.now))
        store: Any = MemoryStore(log, self._before_truncation)
        env = PartitionEnv(
            node_id=self.id,
            world=world,
            store=store,
            spawn=self.tasks.append,
            brokers=lambda: walk.images[self.applied - 1].brokers,
            propose=self._propose,
            lag_max_s=LAG_MAX_S,
            actions=ActionQueue(world.clock),
        )
        opened: Any = log
        self._leader = None
        self.partition = Partition(opened, env, self.saved_high_watermark)
        self._high_watermark = self.partition.high_watermark
        self._end_offset = log.end_offset
        self.partition.become(walk.state_at(self.applied - 1))
        self.observe()

    def crash(self, kept: int | None) -> None:
        """End the process; a power loss leaves `kept` unsynced entries."""
        survivor = self.log.survivor(kept)
        self._discard()
        self.log = survivor
        self.has_lost_power |= kept is not None
        self.clean_epoch = -1

    def shut_down(self) -> None:
        """Stop cleanly: the log is on disk."""
        self.save_high_watermark()
        survivor = self.log.survivor(None)
        survivor.flushing.recovery_point = survivor.end_offset
        self.clean_epoch = self.epoch
        self._discard()
        self.log = survivor

    def _discard(self) -> None:
        self.is_running = self.is_open = False
        self.life += 1
        self.partition = self.fetch = None
        self.close_tasks()

    def close_tasks(self) -> None:
        for task in self.tasks:
            task.close()
        self.tasks.clear()

    def save_high_watermark(self) -> None:
        if self.partition is not None:
            self.saved_high_watermark = self.partition.high_watermark

    def apply_image(self) -> None:
        """Apply the next image of the metadata log."""
        before, after = self.applied - 1, self.applied
        self.applied += 1
        state = self._walk.state_at(after)
        if self.is_open and self.id not in state.replicas:
            if self.partition is not None:
                self._drop_replica(state)
        elif self.is_open and self.partition is None:
            self._create_partition()
        elif self.partition is not None:
            if state is not self._walk.state_at(before):
                self.partition.become(state)
            if self._walk.images[after].brokers is not self._walk.images[before].brokers:
                self.partition.review()
            self.observe()

    def review(self, seconds: float) -> None:
        self.now += seconds
        if self.partition is not None:
            self.partition.review()
            self.observe()

    def resume(self, index: int) -> None:
        """Let a sync or a truncation go on."""
        task = self.tasks[index]
        try:
            task.send(None)
        except StopIteration:
            self.tasks.remove(task)
        self.observe()

    def observe(self) -> None:
        """Check the laws over what has changed."""
        partition, laws = self.partition, self._walk.laws
        if partition is None:
            return
        if self.log.end_offset > self._end_offset:
            laws.appended(self, self._end_offset)
        self._end_offset = self.log.end_offset
        leader = partition.leader
        if leader is not None:
            if leader is not self._leader:
                laws.elected(self, leader)
                self._leader_high_watermark = leader.high_watermark
            elif leader.high_watermark < self._leader_high_watermark:
                laws.went_back(self, self._leader_high_watermark, leader)
            if leader.high_watermark > self._leader_high_watermark:
                self._leader_high_watermark = leader.high_watermark
                laws.led_commit(self._walk.brokers, self, leader)
        self._leader = leader
        high_watermark = partition.high_watermark
        if high_watermark > self._high_watermark:
            laws.committed_up_to(self, self._high_watermark, high_watermark, partition.leader_epoch)
        self._high_watermark = high_watermark

    # Leading

    def append(self, number: int) -> bool:
        partition = self.partition
        if partition is None or not partition.is_leader:
            return False
        records: Any = (number,)
        try:
            partition.append(records, acks_all=True)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                raise
            return False
        self.observe()
        return True

    def delete_records(self, before_offset: int) -> None:
        partition = self.partition
        if partition is not None and partition.is_leader:
            partition.delete_records(min(before_offset, partition.high_watermark))

    def _propose(self, role: LeaderRole, proposal: IsrProposal) -> None:
        self._walk.network.append(Proposal(self.id, self.life, role, proposal))

    def answer(self, request: FetchRequest) -> FetchResponse:
        """Answer a follower's fetch, as `handlers.fetch` does."""
        partition, log = self.partition, self.log
        if partition is None:
            return FetchResponse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            partition.check_follower(request.leader_epoch, request.broker, request.broker_epoch)
            diverging = partition.follower_fetched(
                request.broker,
                request.broker_epoch,
                request.offset,
                request.last_fetched_epoch,
                request.start_offset,
            )
        except KafkaError as error:
            return FetchResponse(request, error.code, start_offset=log.start_offset)
        finally:
            self.observe()
        known = self._walk.images[self.applied - 1].brokers[request.broker]
        self._walk.laws.accepted(self, request.broker, request.broker_epoch, known.epoch)
        first = request.offset - log.start_offset
        records = (
            tuple(log.entries[first : first + self._walk.fetch_entries])
            if diverging is None
            else ()
        )
        return FetchResponse(
            request,
            ErrorCode.NONE,
            diverging,
            records,
            partition.high_watermark,
            log.start_offset,
        )

    # Following

    def send_fetch(self, number: int) -> FetchRequest | None:
        """Send a fetch if the broker follows a leader and has none in flight."""
        partition = self.partition
        if (
            partition is None
            or partition.is_leader
            or partition.leader_id in (-1, self.id)
            or self.tasks
        ):
            return None
        if not partition.is_ready_to_follow:
            self.tasks.append(partition.be_ready_to_follow())
            return None
        if self.fetch is not None and self.fetch.leader_epoch == partition.leader_epoch:
            return None
        self.fetch = FetchRequest(
            self.id,
            self.life,
            partition.leader_id,
            partition.leader_epoch,
            self.epoch,
            partition.log_end_offset,
            partition.last_epoch,
            partition.log_start_offset,
            number,
        )
        return self.fetch

    def fetched(self, response: FetchResponse) -> None:
        """Process a response, unless it is of another leader epoch or to an earlier fetch."""
        partition, request = self.partition, response.request
        if partition is None or self.fetch is not request:
            return
        self.fetch = None
        if request.leader_epoch != partition.leader_epoch or partition.is_leader:
            return
        if response.diverging is not None:
            self.tasks.append(partition.truncate(request.leader_epoch, response.diverging))
        elif response.error is ErrorCode.OFFSET_OUT_OF_RANGE and response.start_offset >= 0:
            self.tasks.append(partition.restart(request.leader_epoch, response.start_offset))
        elif response.error is ErrorCode.NONE:
            records: Any = response.records
            if partition.append_fetched(records, response.high_watermark, response.start_offset):
                self.tasks.append(partition.sync())
        self.observe()

    def _before_truncation(self, offset: int) -> None:
        partition = self.partition
        if partition is not None:
            leader = self._walk.brokers[partition.leader_id]
            leads = (
                leader.partition is not None
                and leader.partition.is_leader
                and leader.partition.leader_epoch == partition.leader_epoch
            )
            self._walk.truncations += 1
            self._walk.note(self.id, "truncates", PARTITION, "to", offset)
            self._walk.laws.truncated(leader if leads else None, self, offset)
            self._end_offset = min(self._end_offset, offset)
