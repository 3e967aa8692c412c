"""A partition on the node that leads it: followers' progress, the high watermark, and who is in
sync. PURE.

The laws
  The high watermark is the least end of all in-sync replicas. It never goes back, and does not move
  while fewer than min.insync.replicas are in sync (KIP-966). While a change of the in-sync replicas
  is under way it counts both those before and those after it (KIP-497). A follower outside that
  keeps up, and may join, is waited for too: under load it would never reach the watermark
  otherwise. Progress counts in one leader epoch alone, which has one `Leader`, and in one life of
  the follower's broker. A follower joins with everything below the watermark and below the start of
  this leader epoch, whose earlier records may all be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from penstock.metadata.image import BrokerImage, PartitionState
from penstock.replica.fencing import is_current, is_eligible
from penstock.replica.progress import UNKNOWN_EPOCH, Progress

Brokers = Mapping[int, BrokerImage]


class IsrMember(NamedTuple):
    """In the epoch in which it fetched. -1: it did not yet fetch from this leader, or is the leader
    itself."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """What the controller is asked for. It refuses where the epochs are no longer those."""

    isr: tuple[IsrMember, ...]
    leader_epoch: int
    partition_epoch: int


class Leader:
    """One leader epoch. `end_offset` is the log's end; `counted_end` what of it counts, which is
    less where it must be synced first."""

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
        self.followers: dict[int, Progress] = {}
        self._take(state, now)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Those that hold the watermark back."""
        if self.pending is None:
            return self.isr
        return (
            *self.isr,
            *(member.broker_id for member in self.pending.isr if member.broker_id not in self.isr),
        )

    # What happens

    def appended(self, end_offset: int, counted_end: int, now: float) -> None:
        if self.high_watermark == self.end_offset:
            # Everybody in sync had everything up to this moment, however long ago their last
            # fetches were.
            self._behind_since = now
        self.end_offset = end_offset
        self.counted(counted_end, now)

    def counted(self, counted_end: int, now: float) -> None:
        self.counted_end = counted_end
        self._advance(now)

    def fetched(
        self, replica_id: int, broker_epoch: int, offset: int, start_offset: int, now: float
    ) -> IsrProposal | None:
        """A follower of the assignment has everything before this offset. Perhaps it may join
        now."""
        follower = self.followers[replica_id]
        before = follower.end_offset
        follower.fetched(offset, start_offset, broker_epoch, self.end_offset, now)
        if offset != before:
            self._advance(now)
        return self._expansion() if self._outside else None

    def review(self, now: float) -> IsrProposal | None:
        """Looked at from time to time, and when brokers come, go or change: some may have to leave,
        and some may be let in."""
        for follower in self.followers.values():
            if follower.broker_epoch != UNKNOWN_EPOCH and not is_current(
                self._brokers(), follower.replica_id, follower.broker_epoch
            ):
                follower.forget()
        self._advance(now)
        return self._shrinking(now) or self._expansion()

    def apply(self, state: PartitionState, now: float) -> None:
        """Committed by the controller in this leader epoch. What is not news changes nothing: a
        proposal may have been made since."""
        if state.partition_epoch > self.partition_epoch:
            self._take(state, now)

    def decided(self, isr: tuple[int, ...], partition_epoch: int, now: float) -> None:
        """The controller took a proposal."""
        if partition_epoch >= self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._set_isr(isr, None, now)

    def refused(self, now: float) -> None:
        """The controller says that it did not, and never will, take the proposal."""
        self._set_isr(self.isr, None, now)

    def set_min_insync(self, count: int, now: float) -> None:
        self._min_insync = count
        self._set_isr(self.isr, self.pending, now)

    # Who is in sync

    def _take(self, state: PartitionState, now: float) -> None:
        self.replicas = state.replicas
        self.partition_epoch = state.partition_epoch
        others = [replica for replica in state.replicas if replica != self._node_id]
        self.followers = {
            replica: self.followers.get(replica)
            or Progress(replica, now if replica in state.isr else -inf)
            for replica in others
        }
        self._set_isr(state.isr, None, now)

    def _set_isr(self, isr: tuple[int, ...], pending: IsrProposal | None, now: float) -> None:
        self.isr = isr
        # A setting above the number of replicas asks for all of them.
        self.min_insync = min(self._min_insync, len(self.replicas))
        self.enough_in_sync = len(isr) >= self.min_insync
        self._outside = [
            follower for replica, follower in self.followers.items() if replica not in isr
        ]
        self._set_pending(pending)
        self._advance(now)

    def _set_pending(self, pending: IsrProposal | None) -> None:
        self.pending = pending
        maximal = self.maximal_isr
        self._counted = [
            follower for replica, follower in self.followers.items() if replica in maximal
        ]

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

    def _expansion(self) -> IsrProposal | None:
        if self.pending is not None:
            return None
        joining = tuple(
            follower.replica_id
            for follower in self._outside
            if follower.end_offset >= self.high_watermark
            and follower.end_offset >= self.epoch_start
            and is_eligible(self._brokers(), follower.replica_id, follower.broker_epoch)
        )
        return self._propose(self.isr + joining) if joining else None

    def _shrinking(self, now: float) -> IsrProposal | None:
        if self.pending is not None:
            return None
        leaving = [
            replica
            for replica in self.isr
            if replica in self.followers and not self._keeps_up(self.followers[replica], now)
        ]
        return (
            self._propose(tuple(replica for replica in self.isr if replica not in leaving))
            if leaving
            else None
        )

    def _keeps_up(self, follower: Progress, now: float) -> bool:
        behind_since = (
            max(follower.caught_up_at, self._behind_since)
            if follower.replica_id in self.isr
            else follower.caught_up_at
        )
        return follower.end_offset >= self.end_offset or now - behind_since <= self._lag_max_s

    # The watermark

    def _advance(self, now: float) -> None:
        if not self.enough_in_sync:
            return
        least = self.counted_end
        for follower in self._counted:
            if follower.end_offset < least:
                least = follower.end_offset
        for follower in self._outside:
            if follower.end_offset < least and self._holds_back(follower, now):
                least = follower.end_offset
        if least > self.high_watermark:
            self.high_watermark = least

    def _holds_back(self, follower: Progress, now: float) -> bool:
        return self._keeps_up(follower, now) and is_eligible(
            self._brokers(), follower.replica_id, follower.broker_epoch
        )
