"""The consensus state machine of one node: `Raft.step(event, now)` returns effects in order.

KRaft as Apache Kafka has it: KIP-595 (Raft by fetching), KIP-630 (snapshots), KIP-853 (dynamic
voters), KIP-996 (pre-vote).

Theory of operation. The machine does no I/O. The shell (`node.quorum.driver`) delivers events,
carries out the effects in order, and delivers the next event only when every `SaveElectionState`,
`Truncate` and `InstallSnapshot` of the last step is on disk. Time and randomness are arguments. The
machine reads the log through `log.RaftLog` and changes it only by effects.

The laws; each has a test in tests/raft:

1. An epoch and a vote are on disk before any message mentions them: `SaveElectionState` is the
   first effect of its step (rule 16).
2. A voter grants one vote per epoch, and none to a candidate whose log is behind its own.
3. A leader commits by counting only records of its epoch. Earlier records are committed with
   them (rule 17).
4. Only synced records count towards a majority: the leader's own, and those of a follower, whose
   fetch offset is its synced log end.
5. A follower's fetch counts only if its log is a prefix of the leader's. Otherwise the follower
   truncates at the diverging epoch.
6. The high watermark never decreases, and a follower never truncates below it. `Commit` follows
   the effects that make its records part of the log; the shell applies up to its high watermark.
7. A leader only appends to its log: it never truncates it and never loads a snapshot (rule 18).
8. A voter becomes a candidate, and so raises the epoch, only after a majority granted it a
   pre-vote. A follower that recently fetched from a leader refuses pre-votes.
9. A leader from which no majority of voters fetches records or a snapshot steps down
   (check-quorum).
10. The voters are the newest ones in the log, committed or not (KIP-853). `membership` has the
   rules by which they change.
11. A request to a voter with another directory id is not for this node: a wiped voter is a new
   voter, and its vote under the old identity is refused (rule 19).

The states and their transitions (`states.TRANSITIONS`):

    from         to           when
    any          Unattached   a message has a higher epoch and no leader; this node resigns
    any          Follower     a message names the leader of a higher epoch
    Unattached   Follower     a message names the leader of this epoch
    Unattached   Unattached   this node grants its vote
    Unattached   Prospective  the election timeout expires (voters)
    Follower     Prospective  the fetch timeout expires, or the leader is unreachable (voters)
    Follower     Unattached   the fetch timeout expires (observers); the leader ends its epoch
    Prospective  Candidate    a majority grants the pre-vote
    Prospective  Follower     a majority rejects it, or time is up, and the last leader is known;
                              or that leader is heard from
    Prospective  Unattached   the same, without a known leader; this node grants its vote
    Candidate    Leader       a majority grants the vote
    Candidate    Follower     a message names the leader of this epoch
    Candidate    Unattached   the vote is lost, or time is up
    Leader       Unattached   no majority fetches (law 9); the voters without it are committed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.errors import ErrorCode
from penstock.raft import elections, follower, leader, membership, voter_requests
from penstock.raft.log import RaftLog
from penstock.raft.messages import (
    AddVoterRequest,
    Appended,
    BeginQuorumEpochRequest,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    Event,
    FetchRequest,
    RemoveVoterRequest,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    SaveElectionState,
    SnapshotPieceServed,
    SnapshotProgress,
    SupportedVersionsReceived,
    Synced,
    Tick,
    UpdateVoterRequest,
    UpgradeKRaftVersionRequest,
    VoteRequest,
)
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import (
    CandidateState,
    EpochState,
    FollowerState,
    LeaderState,
    ProspectiveState,
    Timing,
    UnattachedState,
)
from penstock.raft.voters import Endpoint, Voter, VoterSet


class Raft:
    """Call `start` once, then `step` with every event, and with `Tick` at or after `deadline`.

    `QuorumState` describes the arguments.
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
        self.node_id = local.id
        self._quorum = QuorumState(
            local,
            log,
            election_state,
            timing,
            jitter,
            bootstrap_ids,
            committed,
            auto_join=auto_join,
        )

    @property
    def voters(self) -> tuple[int, ...]:
        """The ids of the newest voters in the log."""
        return self._quorum.voters

    @property
    def voter_set(self) -> VoterSet:
        return self._quorum.voter_set

    @property
    def kraft_version(self) -> int:
        return self._quorum.kraft_version

    @property
    def is_static(self) -> bool:
        return self._quorum.is_static

    @property
    def local(self) -> Voter:
        return self._quorum.local

    def set_endpoints(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Call it before `start`, once the node listens, on a node that can be a voter."""
        self._quorum.local = replace(self._quorum.local, endpoints=endpoints)

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def state(self) -> EpochState:
        return self._quorum.state

    @property
    def leader_id(self) -> int | None:
        return self._quorum.leader_id

    @property
    def leader_id_or_sentinel(self) -> int:
        return self._quorum.leader_id_or_sentinel

    @property
    def high_watermark(self) -> int:
        return self._quorum.high_watermark

    def validate_leader_epoch(self, epoch: int) -> ErrorCode:
        """Return the error for a FetchSnapshot of this leader epoch."""
        return leader.validate_leader_epoch(self._quorum, epoch)

    # Steps

    def start(self, now: float) -> list[Effect]:
        """A voter requests pre-votes almost immediately: if there is a leader, the responses name
        it. Turns and jitter separate voters that start together."""
        quorum = self._quorum
        pause = quorum.timing.disconnect_grace * (
            quorum.election_turn(self.node_id) / 2 + quorum.jitter()
        )
        quorum.transition_to_unattached(quorum.epoch, now, pause)
        if self.voters == (self.node_id,):
            quorum.transition_to_unattached(quorum.epoch, now, 0)
        return self.step(Tick(), now)

    def step(self, event: Event, now: float) -> list[Effect]:
        quorum = self._quorum
        before = (quorum.epoch, quorum.voted_id, quorum.voted_directory_id)
        quorum.effects = []
        membership.apply_voter_set(quorum, now)
        self._handle(event, now)
        state: EpochState | None = None
        while state is not quorum.state:
            state = quorum.state
            self._poll(state, now)
        if (quorum.epoch, quorum.voted_id, quorum.voted_directory_id) != before:
            election_state = ElectionState(
                quorum.epoch, quorum.voted_id, quorum.leader_id, quorum.voted_directory_id
            )
            quorum.effects.insert(0, SaveElectionState(election_state))
        return quorum.effects

    def _handle(self, event: Event, now: float) -> None:
        quorum = self._quorum
        match event:
            case RequestReceived(request=VoteRequest() as request):
                elections.handle_vote_request(quorum, event, request, now)
            case RequestReceived(request=BeginQuorumEpochRequest() as request):
                elections.handle_begin_quorum_epoch_request(quorum, event, request, now)
            case RequestReceived(request=EndQuorumEpochRequest() as request):
                elections.handle_end_quorum_epoch_request(quorum, event, request, now)
            case RequestReceived(request=FetchRequest() as request):
                leader.handle_fetch_request(quorum, event, request, now)
            case RequestReceived():
                self._handle_voter_request(event, now)
            case ResponseReceived(request=VoteRequest() as request, response=response):
                elections.handle_vote_response(quorum, event, request, response, now)
            case ResponseReceived(request=FetchRequest() as request, response=response):
                follower.handle_fetch_response(quorum, event, request, response, now)
            case ResponseReceived(request=request, response=response):
                quorum.maybe_transition(response.epoch, response.leader_id, now)
                if isinstance(request, UpdateVoterRequest):
                    voter_requests.handle_update_voter_response(
                        quorum, event.sender, request, response.error
                    )
            case RequestFailed(request=VoteRequest() as request):
                elections.handle_vote_failure(quorum, event, request, now)
            case RequestFailed(request=FetchRequest() as request):
                follower.handle_fetch_failure(quorum, event, request, now)
            case SnapshotProgress():
                follower.handle_snapshot_progress(quorum, event, now)
            case SnapshotPieceServed():
                leader.handle_snapshot_piece_served(quorum, event, now)
            case SupportedVersionsReceived():
                membership.handle_supported_versions(quorum, event, now)
            case Synced():
                follower.handle_synced(quorum)
            case Resign():
                leader.resign(quorum, now)
            case Tick() | Appended() | RequestFailed():
                pass

    def _handle_voter_request(self, event: RequestReceived, now: float) -> None:
        quorum = self._quorum
        match event.request:
            case AddVoterRequest() as request:
                membership.handle_add_voter_request(quorum, event, request, now)
            case RemoveVoterRequest() as request:
                membership.handle_remove_voter_request(quorum, event, request, now)
            case UpdateVoterRequest() as request:
                membership.handle_update_voter_request(quorum, event, request, now)
            case UpgradeKRaftVersionRequest() as request:
                membership.handle_upgrade_request(quorum, event, request, now)
            case _:
                pass

    def _poll(self, state: EpochState, now: float) -> None:
        """Do what the state requires at this time; may enter another state."""
        match state:
            case UnattachedState():
                elections.poll_unattached(self._quorum, state, now)
                if self._quorum.state is state:
                    follower.poll_unattached_fetch(self._quorum, state, now)
            case FollowerState():
                follower.poll_follower(self._quorum, state, now)
            case ProspectiveState():
                elections.poll_prospective(self._quorum, state, now)
            case CandidateState():
                elections.poll_candidate(self._quorum, state, now)
            case LeaderState():
                leader.poll_leader(self._quorum, state, now)
                if self._quorum.state is state:
                    membership.poll_change(self._quorum, state, now)

    @property
    def deadline(self) -> float:
        """When the next `Tick` is due, if no event arrives earlier."""
        state = self._quorum.state
        match state:
            case UnattachedState():
                fetch_at = follower.unattached_fetch_deadline(self._quorum, state)
                return min(state.election_at, fetch_at)
            case FollowerState():
                return follower.follower_deadline(state)
            case ProspectiveState() | CandidateState():
                return min(state.timeout_at, state.election.retry_at)
            case LeaderState():
                return leader.leader_deadline(self._quorum, state)
