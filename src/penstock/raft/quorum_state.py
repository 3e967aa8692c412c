"""The state that all roles of a node share, and the transitions between them. The effects of the
current step collect here."""

from __future__ import annotations

import math
from collections.abc import Callable
from uuid import UUID

from penstock.errors import ErrorCode, invariant
from penstock.ids import NO_UUID
from penstock.raft.log import RaftLog
from penstock.raft.messages import (
    NO_LEADER,
    AppendLeaderChange,
    Commit,
    Effect,
    ElectionState,
    FetchResponse,
    SendResponse,
    Sync,
    VoterChangeResponse,
)
from penstock.raft.states import (
    TRANSITIONS,
    CandidateState,
    EpochElection,
    EpochState,
    FollowerState,
    LeaderState,
    ProspectiveState,
    ReplicaState,
    Timing,
    UnattachedState,
)
from penstock.raft.voters import RECONFIGURATION_LEVEL, Voter, VoterSet


class QuorumState:
    """Epoch, vote, current role and high watermark of one node.

    `local` is this node as a voter; it has no endpoints if it cannot become one. The voters are
    those of the log. A node without static voters asks `bootstrap_ids` for the leader too. `jitter`
    returns a random number in [0, 1). Records below `committed` were committed before the node
    restarted. With `auto_join` an observer asks the leader to make it a voter.
    """

    def __init__(
        self,
        local: Voter,
        log: RaftLog,
        election_state: ElectionState,
        timing: Timing,
        jitter: Callable[[], float],
        bootstrap_ids: tuple[int, ...] = (),
        committed: int = 0,
        *,
        auto_join: bool = False,
    ) -> None:
        self.local = local
        self.node_id = local.id
        self.auto_join = auto_join
        self._bootstrap_ids = bootstrap_ids
        self.log = log
        self.timing = timing
        self.jitter = jitter
        self.epoch = election_state.epoch
        self.voted_id = election_state.voted_id
        self.voted_directory_id = election_state.voted_directory_id
        snapshot = log.latest_snapshot
        self.high_watermark = max(committed, 0 if snapshot is None else snapshot.offset)
        self.state: EpochState = UnattachedState(math.inf)
        self.has_resigned = False
        self.effects: list[Effect] = []
        # Consecutive elections without a leader; each one lengthens the backoff.
        self.lost_elections = 0

    # Voters

    @property
    def voter_set(self) -> VoterSet:
        """The newest voters in the log, committed or not."""
        return self.log.voter_sets.latest.voters

    @property
    def voters(self) -> tuple[int, ...]:
        return self.voter_set.ids

    @property
    def kraft_version(self) -> int:
        return self.log.voter_sets.latest.kraft_version

    @property
    def is_static(self) -> bool:
        """True if the voters are those of controller.quorum.voters, the same on all nodes."""
        return self.kraft_version < RECONFIGURATION_LEVEL and bool(self.voters)

    @property
    def is_voter(self) -> bool:
        return self.voter_set.has(self.local.key)

    @property
    def may_stand(self) -> bool:
        """True if this node starts elections. A voter whose removal may not be committed still
        does (Raft dissertation, 4.2.2): the others may lack the record of its removal, need its
        vote as long as they do, and are refused it because their logs are behind. It does not count
        its own vote."""
        if self.has_resigned or self.is_voter:
            return not self.has_resigned
        sets = self.log.voter_sets
        latest = sets.latest.offset
        return latest >= self.high_watermark and sets.before(latest).voters.has(self.local.key)

    @property
    def remote_voters(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter != self.node_id)

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        """The nodes that this one asks for the leader. The voters of its log may all be gone, so a
        dynamic voter asks the bootstrap servers too."""
        if self.is_static:
            return () if self.is_voter else self.voters
        return self._bootstrap_ids if self.is_voter else (*self.remote_voters, *self._bootstrap_ids)

    @property
    def leader_id(self) -> int | None:
        """The leader of the current epoch, if this node knows it."""
        state = self.state
        if isinstance(state, LeaderState):
            return self.node_id
        return state.leader_id if isinstance(state, FollowerState | ProspectiveState) else None

    @property
    def leader_id_or_sentinel(self) -> int:
        """The leader id as responses carry it: NO_LEADER if unknown."""
        return NO_LEADER if self.leader_id is None else self.leader_id

    # Transitions

    def transition_to_unattached(
        self, epoch: int, now: float, election_in: float | None = None
    ) -> None:
        """`election_in` overrides the randomised election timeout."""
        self._enter_epoch(epoch)
        timeout = self._election_timeout() if election_in is None else election_in
        self._transition_to(UnattachedState(now + timeout if self.may_stand else math.inf))

    def transition_to_follower(self, epoch: int, leader_id: int, now: float) -> None:
        self._enter_epoch(epoch)
        self._transition_to(FollowerState(leader_id, now + self.timing.fetch_timeout))

    def transition_to_prospective(self, now: float) -> None:
        timeout_at = now + self._election_timeout()
        self._transition_to(ProspectiveState(self.leader_id, now, timeout_at, self._new_election()))

    def transition_to_candidate(self, now: float) -> None:
        """Enters the next epoch and votes for this node."""
        self.epoch = self.epoch + 1
        self.vote_for(self.node_id, self.local.directory_id)
        timeout_at = now + self._election_timeout()
        self._transition_to(CandidateState(now, timeout_at, self._new_election()))

    def _new_election(self) -> EpochElection:
        return EpochElection(self.voters, granted={self.node_id} if self.is_voter else set())

    def transition_to_leader(self, now: float, granting_voters: tuple[int, ...]) -> None:
        self.lost_elections = 0
        replicas = {voter: ReplicaState(last_fetch_at=now) for voter in self.remote_voters}
        self._transition_to(
            LeaderState(
                self.log.end.offset, now, self.voter_set, replicas, begin_quorum_epoch_at=now
            )
        )
        self.effects += [
            AppendLeaderChange(self.epoch, granting_voters, self._voters_to_write()),
            Sync(),
        ]

    def _voters_to_write(self) -> VoterSet | None:
        """Return the voters that a new leader writes to its log: those of the bootstrap checkpoint,
        which the log does not have yet, and its own new endpoints. The members do not change."""
        latest = self.log.voter_sets.latest
        if latest.kraft_version < RECONFIGURATION_LEVEL:
            return None
        updated = latest.voters.update(self.local) if self.local.endpoints else latest.voters
        if updated is not None and (latest.offset < 0 or updated != latest.voters):
            return updated
        return None

    def vote_for(self, candidate: int | None, directory_id: UUID = NO_UUID) -> None:
        self.voted_id, self.voted_directory_id = candidate, directory_id

    def maybe_transition(self, epoch: int, leader_id: int, now: float) -> None:
        """Follow what any message says: a higher epoch, or the leader of the current epoch.

        The log of this node may lack the VotersRecord of that leader, also if its voters are static
        so far.
        """
        is_leader_known = leader_id != self.node_id and leader_id >= 0
        if epoch > self.epoch:
            if is_leader_known:
                self.transition_to_follower(epoch, leader_id, now)
            else:
                self.transition_to_unattached(epoch, now)
        elif epoch == self.epoch and is_leader_known and self.leader_id is None:
            self.transition_to_follower(epoch, leader_id, now)

    def _transition_to(self, state: EpochState) -> None:
        """Enter a state. Fetches that the last state delayed and its change of the voters fail:
        this node no longer leads."""
        before, self.state = self.state, state
        invariant(
            type(state) in TRANSITIONS[type(before)],
            f"illegal transition from {type(before).__name__} to {type(state).__name__}",
        )
        if isinstance(before, LeaderState):
            for delayed in before.delayed_fetches:
                error = (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                    if delayed.request.epoch == self.epoch
                    else ErrorCode.FENCED_LEADER_EPOCH
                )
                response = FetchResponse(error, self.leader_id_or_sentinel, self.epoch)
                self.effects.append(SendResponse(delayed.reply_to, response))
            if before.change is not None and not before.change.is_answered:
                message = "the leadership was lost before the change of the voters was committed"
                self.respond_to_change(
                    before.change.reply_to, ErrorCode.NOT_LEADER_OR_FOLLOWER, message
                )

    def respond_to_change(
        self, reply_to: object, error: ErrorCode, message: str | None = None
    ) -> None:
        """Respond to a request that changes the voters."""
        response = VoterChangeResponse(error, self.leader_id_or_sentinel, self.epoch, message)
        self.effects.append(SendResponse(reply_to, response))

    def _enter_epoch(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.vote_for(None)

    # Timeouts

    def _election_timeout(self) -> float:
        return self.timing.election_timeout * (1 + self.jitter())

    def election_backoff(self) -> float:
        """Return a random, exponentially growing pause after a lost election."""
        self.lost_elections += 1
        longest = min(
            self.timing.election_backoff_max, self.timing.retry_backoff * 2.0**self.lost_elections
        )
        return longest * self.jitter()

    def election_turn(self, leader_id: int) -> int:
        """Return this voter's position among the voters that lose `leader_id` at the same time.

        They start elections one after the other, so that they do not split the vote.
        """
        return sum(voter < self.node_id for voter in self.voters if voter != leader_id)

    # The high watermark

    def advance_high_watermark(self, high_watermark: int) -> None:
        """The high watermark never decreases."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.effects.append(Commit(high_watermark))
