"""The leader: answers fetches, advances the high watermark, and steps down without a majority.
Owns the state Leader."""

from __future__ import annotations

import math

from penstock.errors import ErrorCode
from penstock.limits import MAX_QUORUM_OBSERVERS
from penstock.raft.log import Diverging, OffsetAndEpoch, SnapshotRequired, validate_offset_and_epoch
from penstock.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    RequestReceived,
    SendRequest,
    SendResponse,
    SnapshotPieceServed,
)
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import DelayedFetch, LeaderState, ReplicaState
from penstock.raft.voters import ReplicaKey

# A leader steps down when no majority has fetched for this many fetch timeouts, which is later than
# its followers start an election (Kafka's factor).
CHECK_QUORUM_FACTOR = 1.5
# A voter that has not fetched yet gets this many BeginQuorumEpoch requests per fetch timeout.
BEGIN_QUORUM_EPOCH_PER_TIMEOUT = 4
# An observer that has not fetched for this long is forgotten (Kafka has the same bound).
OBSERVER_TIMEOUT_S = 300.0


def poll_leader(quorum: QuorumState, state: LeaderState, now: float) -> None:
    if now >= check_quorum_deadline(quorum, state):
        pause = quorum.timing.election_timeout * quorum.jitter()
        quorum.transition_to_unattached(quorum.epoch, now, pause)
        return
    _update_high_watermark(quorum, state)
    _complete_fetches(quorum, state, now)
    _forget_observers(state, now)
    if now >= state.begin_quorum_epoch_at:
        state.begin_quorum_epoch_at = (
            now + quorum.timing.fetch_timeout / BEGIN_QUORUM_EPOCH_PER_TIMEOUT
        )
        for voter, replica in state.voters.items():
            if replica.end_offset < 0:
                directory_id = state.voter_set.directory_id(voter)
                quorum.effects.append(
                    SendRequest(voter, BeginQuorumEpochRequest(quorum.epoch, directory_id))
                )


def leader_deadline(quorum: QuorumState, state: LeaderState) -> float:
    """Return when `poll_leader` has work to do."""
    fetch_deadline = min((fetch.deadline for fetch in state.delayed_fetches), default=math.inf)
    is_voter_silent = any(replica.end_offset < 0 for replica in state.voters.values())
    observers = iter(state.observers.values())
    forget_at = next((each.last_fetch_at + OBSERVER_TIMEOUT_S for each in observers), math.inf)
    return min(
        check_quorum_deadline(quorum, state),
        fetch_deadline,
        state.begin_quorum_epoch_at if is_voter_silent else math.inf,
        forget_at,
        math.inf if state.change is None else state.change.deadline,
    )


def check_quorum_deadline(quorum: QuorumState, state: LeaderState) -> float:
    """Return when the leader steps down unless voters fetch; never for a single voter."""
    needed = state.voter_set.majority - is_counted(quorum, state)
    if needed == 0:
        return math.inf
    latest = sorted((replica.last_fetch_at for replica in state.voters.values()), reverse=True)
    return latest[needed - 1] + quorum.timing.fetch_timeout * CHECK_QUORUM_FACTOR


# The high watermark


def local_end_offset(quorum: QuorumState) -> int:
    """Return the leader's own acknowledgement: only synced records count towards a majority."""
    return quorum.log.synced_end


def is_committable(state: LeaderState, offset: int) -> bool:
    """Return True if the record below `offset` belongs to the leader's epoch.

    A record of an earlier epoch may still be overwritten even if a majority has it (Raft, figure
    8); it is committed together with the first record of this epoch.
    """
    return offset > state.epoch_start_offset


def is_counted(quorum: QuorumState, state: LeaderState) -> bool:
    """Return True if the leader is a voter. One that is about to remove itself is none."""
    return state.voter_set.has(quorum.local.key)


def _update_high_watermark(quorum: QuorumState, state: LeaderState) -> None:
    end_offsets = [replica.end_offset for replica in state.voters.values()]
    if is_counted(quorum, state):
        end_offsets.append(local_end_offset(quorum))
    end_offsets.sort(reverse=True)
    majority_offset = end_offsets[state.voter_set.majority - 1]
    if is_committable(state, majority_offset):
        quorum.advance_high_watermark(majority_offset)


# Fetches


def handle_fetch_request(
    quorum: QuorumState, event: RequestReceived, request: FetchRequest, now: float
) -> None:
    state, error = quorum.state, validate_leader_epoch(quorum, request.epoch)
    if error is not ErrorCode.NONE or not isinstance(state, LeaderState):
        response = FetchResponse(error, quorum.leader_id_or_sentinel, quorum.epoch)
        quorum.effects.append(SendResponse(event.reply_to, response))
        return
    replica = _replica_state(quorum, state, ReplicaKey(event.sender, request.directory_id))
    last_fetch_at, replica.last_fetch_at = replica.last_fetch_at, now
    match validate_offset_and_epoch(quorum.log, request.offset, request.last_fetched_epoch):
        case Diverging(end):
            response = _fetch_response(quorum, diverging=end)
            quorum.effects.append(SendResponse(event.reply_to, response))
        case SnapshotRequired(snapshot):
            response = _fetch_response(quorum, snapshot=snapshot)
            quorum.effects.append(SendResponse(event.reply_to, response))
        case None:
            replica.end_offset = request.offset
            log_end = quorum.log.end.offset
            if request.offset >= log_end:
                replica.last_caught_up_at = now
            elif request.offset >= replica.leader_end_at_fetch >= 0:
                replica.last_caught_up_at = max(replica.last_caught_up_at, last_fetch_at)
            replica.leader_end_at_fetch = log_end
            state.delayed_fetches.append(
                DelayedFetch(event.sender, request, event.reply_to, now + request.max_wait_s)
            )


def handle_snapshot_piece_served(
    quorum: QuorumState, event: SnapshotPieceServed, now: float
) -> None:
    """A voter that fetches a snapshot follows this leader: it counts for check-quorum."""
    state = quorum.state
    if (
        isinstance(state, LeaderState)
        and event.epoch == quorum.epoch
        and event.replica_id in state.voters
        and state.voter_set.has(ReplicaKey(event.replica_id, event.directory_id))
    ):
        state.voters[event.replica_id].last_fetch_at = now


def validate_leader_epoch(quorum: QuorumState, epoch: int) -> ErrorCode:
    """Return the error for a Fetch or FetchSnapshot of this leader epoch."""
    if quorum.has_resigned:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(quorum.state, LeaderState):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _replica_state(quorum: QuorumState, state: LeaderState, key: ReplicaKey) -> ReplicaState:
    """Return the voter's or observer's state; for a client without an id, one that is dropped.

    A replica with the id of a voter and another directory is an observer (rule 19).
    """
    if key.id in state.voters and state.voter_set.has(key):
        return state.voters[key.id]
    if key.id < 0 or key.id == quorum.node_id:
        return ReplicaState()
    # Inserted again, so that the observers are ordered by their last fetch.
    replica = state.observers.pop(key, None) or ReplicaState()
    state.observers[key] = replica
    if len(state.observers) > MAX_QUORUM_OBSERVERS:
        del state.observers[next(iter(state.observers))]
    return replica


def _forget_observers(state: LeaderState, now: float) -> None:
    while state.observers:
        observer = next(iter(state.observers))
        if now < state.observers[observer].last_fetch_at + OBSERVER_TIMEOUT_S:
            return
        del state.observers[observer]


def _complete_fetches(quorum: QuorumState, state: LeaderState, now: float) -> None:
    """Answer fetches for which there are records or a higher high watermark, and expired ones."""
    log_end, delayed_fetches = quorum.log.end.offset, state.delayed_fetches
    state.delayed_fetches = []
    for fetch in delayed_fetches:
        has_news = (
            log_end > fetch.request.offset or quorum.high_watermark > fetch.request.high_watermark
        )
        if has_news or now >= fetch.deadline:
            response = _fetch_response(quorum, read_from=fetch.request.offset)
            quorum.effects.append(SendResponse(fetch.reply_to, response))
        else:
            state.delayed_fetches.append(fetch)


def _fetch_response(
    quorum: QuorumState,
    *,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
    read_from: int | None = None,
) -> FetchResponse:
    return FetchResponse(
        ErrorCode.NONE,
        quorum.node_id,
        quorum.epoch,
        quorum.high_watermark,
        diverging,
        snapshot,
        read_from=read_from,
    )


# Resignation


def resign(quorum: QuorumState, now: float) -> None:
    """Step down for good. The successors are ordered by log end offset, longest log first."""
    state = quorum.state
    quorum.has_resigned = True
    if isinstance(state, LeaderState):
        announce_resignation(quorum, state)
    quorum.transition_to_unattached(quorum.epoch, now)


def announce_resignation(quorum: QuorumState, state: LeaderState) -> None:
    voters = state.voters
    successors = sorted(voters, key=lambda voter: -voters[voter].end_offset)
    request = EndQuorumEpochRequest(quorum.epoch, tuple(successors))
    quorum.effects += [SendRequest(voter, request) for voter in voters]
