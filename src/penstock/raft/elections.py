"""Elections: granting votes, requesting them, and announcements of leaders. Owns the states
Unattached, Prospective and Candidate."""

from __future__ import annotations

import math
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.ids import NO_UUID
from penstock.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    RequestFailed,
    RequestReceived,
    Response,
    ResponseReceived,
    SendRequest,
    SendResponse,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import (
    CandidateState,
    EpochElection,
    FollowerState,
    LeaderState,
    ProspectiveState,
    UnattachedState,
)

# Granting votes


def handle_vote_request(
    quorum: QuorumState, event: RequestReceived, request: VoteRequest, now: float
) -> None:
    error = _validate_voter(quorum, event.sender, request.epoch, request.voter_directory_id)
    granted = False
    if error is ErrorCode.NONE:
        quorum.maybe_transition(request.epoch, NO_LEADER, now)
        granted = _can_grant_vote(quorum, event.sender, request, now)
        if granted and not request.pre_vote:
            quorum.vote_for(event.sender, request.directory_id)
            quorum.transition_to_unattached(quorum.epoch, now)
    response = VoteResponse(error, quorum.leader_id_or_sentinel, quorum.epoch, granted)
    quorum.effects.append(SendResponse(event.reply_to, response))


def _validate_voter(
    quorum: QuorumState, sender: int, epoch: int, voter_directory_id: UUID | None = None
) -> ErrorCode:
    """Return the error for a request of a voter to this one, whose directory id it says.

    Static voters know each other. With kraft.version 1 the log of this node may lack the
    VotersRecord that made the sender or this node a voter, so that neither has to be one here. A
    request to a directory id comes from a log with such a record.
    """
    if quorum.has_resigned:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    is_static = quorum.is_static and voter_directory_id in (None, NO_UUID)
    if is_static and (not quorum.is_voter or sender not in quorum.remote_voters):
        return ErrorCode.INCONSISTENT_VOTER_SET
    if sender < 0 or sender == quorum.node_id:
        return ErrorCode.INVALID_REQUEST
    if voter_directory_id is not None and not is_addressed(quorum, voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def is_addressed(quorum: QuorumState, voter_directory_id: UUID) -> bool:
    """Return True if a request to the voter with this directory id is meant for this node.

    A node whose directory was emptied is not the voter that it was (rule 19). Only static voters
    have no directory id.
    """
    if voter_directory_id == NO_UUID:
        return quorum.is_static
    return voter_directory_id == quorum.local.directory_id


def _can_grant_vote(quorum: QuorumState, candidate: int, request: VoteRequest, now: float) -> bool:
    if request.end.rank < quorum.log.end.rank:
        return False
    if request.pre_vote:
        return _can_grant_pre_vote(quorum, candidate, request, now)
    if quorum.leader_id is not None or isinstance(quorum.state, CandidateState):
        return False
    if quorum.voted_id is None:
        return True
    # A quorum-state of kraft.version 0 has no directory id.
    return quorum.voted_id == candidate and quorum.voted_directory_id in (
        NO_UUID,
        request.directory_id,
    )


def _can_grant_pre_vote(
    quorum: QuorumState, candidate: int, request: VoteRequest, now: float
) -> bool:
    """A leader, and a follower that recently fetched from a leader, refuses pre-votes (KIP-996).

    Of two voters that request pre-votes at the same time with equal logs, the one with the lower id
    is granted first.
    """
    state = quorum.state
    if isinstance(state, LeaderState):
        return False
    if isinstance(state, FollowerState):
        is_disconnected = (
            state.disconnected_at is not None
            and now >= state.disconnected_at + quorum.timing.disconnect_grace
        )
        return is_disconnected or not state.has_fetched
    if isinstance(state, ProspectiveState | CandidateState):
        is_preferred = candidate < quorum.node_id or request.end.rank > quorum.log.end.rank
        return is_preferred or now >= state.since + quorum.timing.disconnect_grace
    return True


# Requesting votes


def poll_unattached(quorum: QuorumState, state: UnattachedState, now: float) -> None:
    if now >= state.election_at:
        quorum.transition_to_prospective(now)


def poll_prospective(quorum: QuorumState, state: ProspectiveState, now: float) -> None:
    if state.election.is_granted:
        quorum.transition_to_candidate(now)
    elif state.election.is_rejected or now >= state.timeout_at:
        if state.leader_id is None:
            quorum.transition_to_unattached(quorum.epoch, now, quorum.election_backoff())
        else:
            quorum.transition_to_follower(quorum.epoch, state.leader_id, now)
    else:
        _send_vote_requests(quorum, state.election, now, pre_vote=True)


def poll_candidate(quorum: QuorumState, state: CandidateState, now: float) -> None:
    if state.election.is_granted:
        granted = state.election.granted
        quorum.transition_to_leader(
            now, tuple(voter for voter in quorum.voters if voter in granted)
        )
    elif state.election.is_lost or now >= state.timeout_at:
        quorum.transition_to_unattached(quorum.epoch, now, quorum.election_backoff())
    else:
        _send_vote_requests(quorum, state.election, now, pre_vote=False)


def _send_vote_requests(
    quorum: QuorumState, election: EpochElection, now: float, *, pre_vote: bool
) -> None:
    if now < election.retry_at:
        return
    for voter in quorum.remote_voters:
        if voter not in election.granted and voter not in election.in_flight:
            request = VoteRequest(
                quorum.epoch,
                quorum.log.end,
                pre_vote,
                quorum.local.directory_id,
                quorum.voter_set.directory_id(voter),
            )
            election.in_flight.add(voter)
            election.rejected.discard(voter)
            election.unreachable.discard(voter)
            quorum.effects.append(SendRequest(voter, request))
    election.retry_at = math.inf


def handle_vote_response(
    quorum: QuorumState,
    event: ResponseReceived,
    request: VoteRequest,
    response: Response,
    now: float,
) -> None:
    quorum.maybe_transition(response.epoch, response.leader_id, now)
    election = _election_of(quorum, request)
    if election is None:
        return
    election.in_flight.discard(event.sender)
    if isinstance(response, VoteResponse) and response.error is ErrorCode.NONE and response.granted:
        election.granted.add(event.sender)
    else:
        is_unavailable = response.error is ErrorCode.BROKER_NOT_AVAILABLE
        (election.unreachable if is_unavailable else election.rejected).add(event.sender)
        _retry_pre_vote(quorum, election, request, now)


def handle_vote_failure(
    quorum: QuorumState, event: RequestFailed, request: VoteRequest, now: float
) -> None:
    election = _election_of(quorum, request)
    if election is not None:
        election.in_flight.discard(event.destination)
        election.unreachable.add(event.destination)
        _retry_pre_vote(quorum, election, request, now)


def _election_of(quorum: QuorumState, request: VoteRequest) -> EpochElection | None:
    """Return the election that the request belongs to; None if it is over."""
    state = quorum.state
    is_current = request.epoch == quorum.epoch and isinstance(
        state, ProspectiveState if request.pre_vote else CandidateState
    )
    if is_current and isinstance(state, ProspectiveState | CandidateState):
        return state.election
    return None


def _retry_pre_vote(
    quorum: QuorumState, election: EpochElection, request: VoteRequest, now: float
) -> None:
    """A voter may grant a pre-vote that it rejected a moment ago. A rejected vote is final."""
    if request.pre_vote:
        election.retry_at = min(election.retry_at, now + quorum.timing.retry_backoff)


# Announcements of leaders


def handle_begin_quorum_epoch_request(
    quorum: QuorumState, event: RequestReceived, request: BeginQuorumEpochRequest, now: float
) -> None:
    error = _validate_voter(quorum, event.sender, request.epoch, request.voter_directory_id)
    if error is ErrorCode.NONE:
        quorum.maybe_transition(request.epoch, event.sender, now)
        state = quorum.state
        if isinstance(state, ProspectiveState) and state.leader_id == event.sender:
            quorum.transition_to_follower(quorum.epoch, event.sender, now)
    response = Response(error, quorum.leader_id_or_sentinel, quorum.epoch)
    quorum.effects.append(SendResponse(event.reply_to, response))


def handle_end_quorum_epoch_request(
    quorum: QuorumState, event: RequestReceived, request: EndQuorumEpochRequest, now: float
) -> None:
    """The first successor starts an election immediately, the others in turn if it does not win."""
    error = _validate_voter(quorum, event.sender, request.epoch)
    if error is ErrorCode.NONE:
        quorum.maybe_transition(request.epoch, event.sender, now)
        state = quorum.state
        if isinstance(state, FollowerState | ProspectiveState) and state.leader_id == event.sender:
            successors = request.successors
            turn = (
                successors.index(quorum.node_id)
                if quorum.node_id in successors
                else len(successors)
            )
            quorum.transition_to_unattached(
                quorum.epoch, now, turn * quorum.timing.disconnect_grace
            )
    response = Response(error, quorum.leader_id_or_sentinel, quorum.epoch)
    quorum.effects.append(SendResponse(event.reply_to, response))
