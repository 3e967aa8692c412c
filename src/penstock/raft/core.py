"""The state of one node of the quorum, and the transitions between its roles. What a role does is
in the files of that role."""

from __future__ import annotations

import math
from collections.abc import Callable

from penstock.errors import ErrorCode
from penstock.raft.log_view import LogView
from penstock.raft.messages import (
    NO_LEADER,
    AppendLeaderChange,
    Commit,
    Effect,
    ElectionState,
    FetchAnswer,
    Reply,
    Sync,
)
from penstock.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Poll,
    Progress,
    Prospective,
    Role,
    Timing,
    Unattached,
)


class Core:
    """`voters` are static. An observer may not know them, but some nodes to ask (`seeds`). `jitter`
    gives a random number in [0, 1). What is before `committed` was so in an earlier life."""

    def __init__(
        self,
        node_id: int,
        voters: tuple[int, ...],
        log: LogView,
        state: ElectionState,
        timing: Timing,
        jitter: Callable[[], float],
        seeds: tuple[int, ...] = (),
        committed: int = 0,
    ) -> None:
        self.node_id = node_id
        self.voters = voters
        self.seeds = voters or seeds
        self.log = log
        self.timing = timing
        self.jitter = jitter
        self.epoch = state.epoch
        self.voted_id = state.voted_id
        snapshot = log.latest_snapshot
        self.high_watermark = max(committed, 0 if snapshot is None else snapshot.offset)
        self.role: Role = Unattached(math.inf)
        self.resigned = False
        self.effects: list[Effect] = []
        # Elections lost in a row: each makes the next pause longer.
        self.lost_elections = 0

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter != self.node_id)

    @property
    def leader_id(self) -> int | None:
        """Of this epoch, as far as this node knows."""
        role = self.role
        if isinstance(role, Leader):
            return self.node_id
        return role.leader_id if isinstance(role, Follower | Prospective) else None

    @property
    def known_leader(self) -> int:
        return NO_LEADER if self.leader_id is None else self.leader_id

    # Transitions

    def become(self, role: Role) -> None:
        before, self.role = self.role, role
        if isinstance(before, Leader):
            for held in before.held:
                error = (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                    if held.request.epoch == self.epoch
                    else ErrorCode.FENCED_LEADER_EPOCH
                )
                self.effects.append(
                    Reply(held.reply, FetchAnswer(error, self.known_leader, self.epoch))
                )

    def enter_epoch(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.voted_id = epoch, None

    def become_unattached(self, epoch: int, now: float, election_in: float | None = None) -> None:
        self.enter_epoch(epoch)
        pause = (
            self.timing.election_timeout * (1 + self.jitter())
            if election_in is None
            else election_in
        )
        self.become(Unattached(now + pause if self.is_voter and not self.resigned else math.inf))

    def become_follower(self, epoch: int, leader_id: int, now: float) -> None:
        self.enter_epoch(epoch)
        self.become(Follower(leader_id, now + self.timing.fetch_timeout))

    def become_prospective(self, now: float) -> None:
        timeout = self.timing.election_timeout * (1 + self.jitter())
        poll = Poll(self.voters, granted={self.node_id})
        self.become(Prospective(self.leader_id, now, now + timeout, poll))

    def become_candidate(self, now: float) -> None:
        self.epoch, self.voted_id = self.epoch + 1, self.node_id
        timeout = self.timing.election_timeout * (1 + self.jitter())
        self.become(Candidate(now, now + timeout, Poll(self.voters, granted={self.node_id})))

    def become_leader(self, now: float, granting: tuple[int, ...]) -> None:
        self.lost_elections = 0
        progress = {voter: Progress(fetched_at=now) for voter in self.others}
        self.become(Leader(self.log.end.offset, now, progress, begin_at=now))
        self.effects += [AppendLeaderChange(self.epoch, granting), Sync()]

    def learn(self, epoch: int, leader_id: int, now: float) -> None:
        """From any message: a higher epoch, or who leads this one."""
        is_leader_known = leader_id != self.node_id and (
            leader_id in self.voters if self.voters else leader_id >= 0
        )
        if epoch > self.epoch:
            if is_leader_known:
                self.become_follower(epoch, leader_id, now)
            else:
                self.become_unattached(epoch, now)
        elif epoch == self.epoch and is_leader_known and self.leader_id is None:
            self.become_follower(epoch, leader_id, now)

    # What several roles need

    def election_pause(self) -> float:
        """After a lost election: longer every time, and not the same for all."""
        self.lost_elections += 1
        longest = min(self.timing.backoff_max, self.timing.retry * 2.0**self.lost_elections)
        return longest * self.jitter()

    def turn(self, leader_id: int) -> int:
        """Voters that lose a leader together stand for election one after the other: which turn is
        ours."""
        return sum(voter < self.node_id for voter in self.voters if voter != leader_id)

    def advance(self, high_watermark: int) -> bool:
        """Whether it is news. It never goes back."""
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.effects.append(Commit(high_watermark))
        return True
