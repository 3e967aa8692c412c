"""The leader's view of one partition: follower state, high watermark, in-sync replicas. PURE.

The laws
  The high watermark is the smallest log end of all in-sync replicas. It never goes back. It does
  not move while fewer than min.insync.replicas replicas are in sync (KIP-966).
  While an ISR change is pending, the high watermark waits for the union of the old and the new ISR,
  the maximal ISR (KIP-497). It also waits for a follower outside the ISR that keeps up and may
  join: under load such a follower would never reach the high watermark otherwise.
  A follower's acknowledgements count in one leader epoch, which has one `Leader`, and in one broker
  epoch of the follower.
  A follower joins the ISR when it has everything below the high watermark and below the start of
  this leader epoch: all earlier records may be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from penstock.ids import UNKNOWN_OFFSET
from penstock.metadata.image import UNASSIGNED_DIRECTORY, BrokerImage, PartitionState
from penstock.replica.fencing import is_current, is_eligible

Brokers = Mapping[int, BrokerImage]

UNKNOWN_EPOCH = -1
NO_REPLICA = -1


class IsrMember(NamedTuple):
    """A replica, and the broker epoch in which it fetched. The epoch is -1 for the leader, and for
    a follower that has not fetched from this leader yet."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """An AlterPartition request for one partition. The controller refuses other epochs than its
    own."""

    isr: tuple[IsrMember, ...]
    leader_epoch: int
    partition_epoch: int


class FollowerState:
    """A follower as its leader knows it. Its offsets are unknown until its first fetch in this
    leader epoch. Times are seconds of a monotonic clock."""

    __slots__ = (
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "last_fetch_at",
        "last_fetch_leader_end",
        "replica_id",
        "start_offset",
    )

    def __init__(self, replica_id: int, caught_up_at: float) -> None:
        self.replica_id = replica_id
        self.caught_up_at = caught_up_at
        self.reset()

    def reset(self) -> None:
        """Forget the follower's offsets: a restarted broker may have lost records."""
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_at = self.caught_up_at

    def fetched(
        self, offset: int, start_offset: int, broker_epoch: int, leader_end: int, now: float
    ) -> None:
        """Record a fetch, which acknowledges everything before its offset.

        A follower that fetches at what was the leader's end at its previous fetch had caught up at
        that time. Under steady load it never fetches at the current end.
        """
        if offset >= leader_end:
            self.caught_up_at = now
        elif offset >= self.last_fetch_leader_end != UNKNOWN_OFFSET:
            self.caught_up_at = max(self.caught_up_at, self.last_fetch_at)
        self.last_fetch_leader_end = leader_end
        self.last_fetch_at = now
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch


class Leader:
    """One leader epoch. `end_offset` is the log's end. `counted_end` is the part of it that counts
    towards the high watermark: less than the end if the log must be synced first. `isr_margin` is
    how many replicas are in sync beyond min.insync.replicas, `missing_count` how many are not in
    sync."""

    __slots__ = (
        "_behind_since",
        "_brokers",
        "_directories",
        "_in_maximal_isr",
        "_lag_max_s",
        "_min_insync",
        "_node_id",
        "_out_of_sync",
        "counted_end",
        "end_offset",
        "enough_in_sync",
        "epoch",
        "epoch_start",
        "followers",
        "high_watermark",
        "is_reassigning",
        "isr",
        "isr_margin",
        "min_insync",
        "missing_count",
        "partition_epoch",
        "pending",
        "replicas",
    )

    def __init__(
        self,
        node_id: int,
        state: PartitionState,
        *,
        end_offset: int,
        counted_end: int,
        high_watermark: int,
        min_insync: int,
        lag_max_s: float,
        brokers: Callable[[], Brokers],
        now: float,
    ) -> None:
        self._node_id = node_id
        self._lag_max_s = lag_max_s
        self._brokers = brokers
        self._min_insync = min_insync
        self._behind_since = now
        self.epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.epoch_start = end_offset
        self.end_offset = end_offset
        self.counted_end = counted_end
        self.high_watermark = high_watermark
        self.followers: dict[int, FollowerState] = {}
        self._set_state(state, now)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that hold the high watermark back."""
        if self.pending is None:
            return self.isr
        return (
            *self.isr,
            *(member.broker_id for member in self.pending.isr if member.broker_id not in self.isr),
        )

    # Events

    def appended(self, end_offset: int, counted_end: int, now: float) -> None:
        if self.high_watermark == self.end_offset:
            # All in-sync followers had everything until now, whenever their last fetches were.
            self._behind_since = now
        self.end_offset = end_offset
        self.counted(counted_end, now)

    def counted(self, counted_end: int, now: float) -> None:
        self.counted_end = counted_end
        self._advance(now)

    def fetched(
        self, replica_id: int, broker_epoch: int, offset: int, start_offset: int, now: float
    ) -> IsrProposal | None:
        """Record the fetch of a follower: it has everything before this offset. Return an ISR
        expansion if one is due."""
        follower = self.followers[replica_id]
        before = follower.end_offset
        follower.fetched(offset, start_offset, broker_epoch, self.end_offset, now)
        if offset != before:
            self._advance(now)
        return self._expand_isr() if self._out_of_sync else None

    def review(self, now: float) -> IsrProposal | None:
        """Return an ISR change if one is due; called periodically, and when brokers change."""
        for follower in self.followers.values():
            if follower.broker_epoch != UNKNOWN_EPOCH and not is_current(
                self._brokers(), follower.replica_id, follower.broker_epoch
            ):
                follower.reset()
        self._advance(now)
        return self._shrink_isr(now) or self._expand_isr()

    @property
    def has_out_of_sync(self) -> bool:
        """True if a follower is outside the ISR."""
        return bool(self._out_of_sync)

    def needs_review(self, now: float) -> bool:
        """Return True if time alone may change the ISR or the high watermark: an in-sync follower
        is behind, or one outside the ISR holds the high watermark back."""
        return any(
            follower.end_offset < self.end_offset for follower in self._in_maximal_isr
        ) or any(self._holds_back(follower, now) for follower in self._out_of_sync)

    def waits_since(self, replica_id: int) -> float:
        """Return since when a follower that is behind has not fetched."""
        return max(self.followers[replica_id].last_fetch_at, self._behind_since)

    def apply(self, state: PartitionState, now: float) -> None:
        """Apply a state that the controller committed in this leader epoch. A known state changes
        nothing: a proposal may have been made since."""
        if state.partition_epoch > self.partition_epoch:
            self._set_state(state, now)

    def decided(self, isr: tuple[int, ...], partition_epoch: int, now: float) -> None:
        """Apply a proposal that the controller accepted."""
        if partition_epoch >= self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._set_isr(isr, None, now)

    def refused(self, now: float) -> None:
        """Drop a proposal that the controller refused for good."""
        self._set_isr(self.isr, None, now)

    def set_min_insync(self, count: int, now: float) -> None:
        self._min_insync = count
        self._set_isr(self.isr, self.pending, now)

    # In-sync replicas

    def _set_state(self, state: PartitionState, now: float) -> None:
        self.replicas = state.replicas
        self._directories = state.directories
        self.partition_epoch = state.partition_epoch
        self.is_reassigning = bool(state.adding_replicas or state.removing_replicas)
        self.followers = {
            replica: self.followers.get(replica)
            or FollowerState(replica, now if replica in state.isr else -inf)
            for replica in state.replicas
            if replica != self._node_id
        }
        self._set_isr(state.isr, None, now)

    def _set_isr(self, isr: tuple[int, ...], pending: IsrProposal | None, now: float) -> None:
        self.isr = isr
        # A min.insync.replicas above the number of replicas requires all of them.
        self.min_insync = min(self._min_insync, len(self.replicas))
        self.isr_margin = len(isr) - self.min_insync
        self.missing_count = len(self.replicas) - len(isr)
        self.enough_in_sync = self.isr_margin >= 0
        self._out_of_sync = tuple(
            [follower for replica, follower in self.followers.items() if replica not in isr]
        )
        self._set_pending(pending)
        self._advance(now)

    def _set_pending(self, pending: IsrProposal | None) -> None:
        self.pending = pending
        maximal = self.maximal_isr
        self._in_maximal_isr = tuple(
            [follower for replica, follower in self.followers.items() if replica in maximal]
        )

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        members = tuple(
            IsrMember(
                replica,
                self.followers[replica].broker_epoch
                if replica in self.followers
                else UNKNOWN_EPOCH,
            )
            for replica in self.replicas
            if replica in isr
        )
        proposal = IsrProposal(members, self.epoch, self.partition_epoch)
        self._set_pending(proposal)
        return proposal

    def _expand_isr(self) -> IsrProposal | None:
        if self.pending is not None:
            return None
        joining = tuple(
            follower.replica_id
            for follower in self._out_of_sync
            if follower.end_offset >= self.high_watermark
            and follower.end_offset >= self.epoch_start
            and self._is_eligible(follower)
        )
        return self._propose(self.isr + joining) if joining else None

    def _shrink_isr(self, now: float) -> IsrProposal | None:
        if self.pending is not None:
            return None
        leaving = [
            replica
            for replica in self.isr
            if replica in self.followers and not self._keeps_up(self.followers[replica], now)
        ]
        if not leaving:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in leaving))

    def _keeps_up(self, follower: FollowerState, now: float) -> bool:
        """Return True if the follower has caught up within replica.lag.time.max.ms."""
        behind_since = (
            max(follower.caught_up_at, self._behind_since)
            if follower.replica_id in self.isr
            else follower.caught_up_at
        )
        return follower.end_offset >= self.end_offset or now - behind_since <= self._lag_max_s

    # High watermark

    def _advance(self, now: float) -> None:
        if not self.enough_in_sync:
            return
        least = self.counted_end
        for follower in self._in_maximal_isr:
            if follower.end_offset < least:
                least = follower.end_offset
        for follower in self._out_of_sync:
            if follower.end_offset < least and self._holds_back(follower, now):
                least = follower.end_offset
        if least > self.high_watermark:
            self.high_watermark = least

    def _holds_back(self, follower: FollowerState, now: float) -> bool:
        return self._keeps_up(follower, now) and self._is_eligible(follower)

    def _is_eligible(self, follower: FollowerState) -> bool:
        replica = follower.replica_id
        index = self.replicas.index(replica)
        directory = self._directories[index] if self._directories else UNASSIGNED_DIRECTORY
        return is_eligible(self._brokers(), replica, follower.broker_epoch, directory)

    # Low watermark

    def low_watermark(self, start_offset: int) -> int:
        """Return the smallest log start of the leader and of its followers that are not fenced.
        As in Kafka they need not be in sync."""
        brokers = self._brokers()
        least = start_offset
        for replica, follower in self.followers.items():
            broker = brokers.get(replica)
            if broker is not None and not broker.fenced:
                least = min(least, follower.start_offset)
        return least

    # Fetch from the closest replica

    def preferred_read_replica(self, rack: str, offset: int) -> int:
        """Return the in-sync follower in a consumer's rack that has the offset, the one with the
        most records; -1 if the consumer should read from the leader (KIP-392)."""
        brokers = self._brokers()

        def is_near(replica: int) -> bool:
            broker = brokers.get(replica)
            return broker is not None and broker.rack == rack and not broker.fenced

        if not rack or is_near(self._node_id):
            return NO_REPLICA
        near = [
            follower
            for replica, follower in self.followers.items()
            if replica in self.isr
            and is_near(replica)
            and follower.start_offset <= offset <= follower.end_offset
        ]
        if not near:
            return NO_REPLICA
        return max(
            near, key=lambda follower: (follower.end_offset, -follower.replica_id)
        ).replica_id
