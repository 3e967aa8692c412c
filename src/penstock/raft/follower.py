"""Followers, voters and observers: fetch, write, sync, fetch again.

Owns the state Follower, and the search of an unattached observer for the leader.
"""

from __future__ import annotations

import math

from penstock.errors import ErrorCode, invariant
from penstock.raft.log import OffsetAndEpoch, truncation_offset
from penstock.raft.messages import (
    AppendRecords,
    FetchRequest,
    FetchResponse,
    FetchSnapshot,
    InstallSnapshot,
    RequestFailed,
    Response,
    ResponseReceived,
    SendRequest,
    SnapshotProgress,
    Sync,
    Truncate,
)
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import FollowerState, ProspectiveState, UnattachedState, WaitingFor
from penstock.raft.voter_requests import poll_voter_request


def poll_follower(quorum: QuorumState, state: FollowerState, now: float) -> None:
    if now >= state.timeout_at:
        if quorum.may_stand:
            quorum.transition_to_prospective(now)
        else:
            quorum.transition_to_unattached(quorum.epoch, now)
        return
    poll_voter_request(quorum, state, now)
    if state.waiting_for is WaitingFor.NOTHING and now >= state.retry_at:
        if is_log_synced(quorum):
            state.waiting_for, state.fetch = WaitingFor.RESPONSE, _next_fetch(quorum)
            quorum.effects.append(SendRequest(state.leader_id, state.fetch))
        else:
            state.waiting_for = WaitingFor.DISK
            quorum.effects.append(Sync())


def follower_deadline(state: FollowerState) -> float:
    """Return when `poll_follower` has work to do."""
    if state.waiting_for is WaitingFor.NOTHING:
        return min(state.timeout_at, state.retry_at)
    return state.timeout_at


def is_log_synced(quorum: QuorumState) -> bool:
    """A fetch acknowledges everything below its offset, so all of it must be on disk."""
    return quorum.log.synced_end == quorum.log.end.offset


def _next_fetch(quorum: QuorumState) -> FetchRequest:
    end = quorum.log.end
    return FetchRequest(
        quorum.epoch,
        end.offset,
        end.epoch,
        quorum.high_watermark,
        quorum.timing.fetch_max_wait,
        quorum.local.directory_id,
    )


# Without a leader


def poll_unattached_fetch(quorum: QuorumState, state: UnattachedState, now: float) -> None:
    """Fetch from a random voter or bootstrap server: one that is not the leader responds with the
    leader's id. One that leads this epoch counts the fetch, and may have made this node a voter."""
    if now < unattached_fetch_deadline(quorum, state):
        return
    if not is_log_synced(quorum):
        state.fetch_at = now + quorum.timing.retry_backoff
        quorum.effects.append(Sync())
    else:
        voter = quorum.bootstrap_ids[int(quorum.jitter() * len(quorum.bootstrap_ids))]
        state.fetch = _next_fetch(quorum)
        quorum.effects.append(SendRequest(voter, state.fetch))


def unattached_fetch_deadline(quorum: QuorumState, state: UnattachedState) -> float:
    """Return when a node without a leader sends its next fetch; never for a static voter."""
    may_fetch = not quorum.has_resigned and bool(quorum.bootstrap_ids)
    return state.fetch_at if may_fetch and state.fetch is None else math.inf


# Fetch responses


def handle_fetch_response(
    quorum: QuorumState,
    event: ResponseReceived,
    request: FetchRequest,
    response: Response,
    now: float,
) -> None:
    state = quorum.state
    if isinstance(state, UnattachedState) and state.fetch is request:
        state.fetch, state.fetch_at = None, now + quorum.timing.retry_backoff
        quorum.maybe_transition(response.epoch, response.leader_id, now)
        return
    quorum.maybe_transition(response.epoch, response.leader_id, now)
    state = quorum.state
    if (
        isinstance(state, ProspectiveState)
        and state.leader_id == event.sender
        and _is_success(quorum, request, response)
    ):
        quorum.transition_to_follower(quorum.epoch, event.sender, now)
        return
    if not isinstance(state, FollowerState) or state.fetch is not request:
        return
    state.fetch, state.waiting_for = None, WaitingFor.NOTHING
    if isinstance(response, FetchResponse) and _is_success(quorum, request, response):
        _reset_fetch_timeout(quorum, state, now)
        quorum.lost_elections = 0
        _apply_fetch_response(quorum, state, response)
    elif response.error in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        _leader_disconnected(quorum, state, now)
    else:
        state.retry_at = now + quorum.timing.retry_backoff


def _is_success(quorum: QuorumState, request: FetchRequest, response: Response) -> bool:
    return response.error is ErrorCode.NONE and request.epoch == response.epoch == quorum.epoch


def _apply_fetch_response(
    quorum: QuorumState, state: FollowerState, response: FetchResponse
) -> None:
    if response.diverging is not None:
        offset = truncation_offset(quorum.log, response.diverging)
        invariant(
            offset >= quorum.high_watermark,
            f"the leader's diverging epoch truncates the metadata log to {offset}, below the high "
            f"watermark {quorum.high_watermark}",
        )
        state.waiting_for = WaitingFor.DISK
        quorum.effects.append(Truncate(offset))
    elif response.snapshot is not None:
        state.waiting_for = WaitingFor.SNAPSHOT
        quorum.effects.append(FetchSnapshot(state.leader_id, quorum.epoch, response.snapshot))
    else:
        # Only now do the logs match. The high watermark of a response with a diverging epoch says
        # nothing about the local records: a truncated log may have to be truncated again.
        state.leader_high_watermark = response.high_watermark
        if len(response.records):
            state.waiting_for = WaitingFor.DISK
            quorum.effects += [AppendRecords(response.records), Sync()]
        else:
            _update_high_watermark(quorum, state)


def _update_high_watermark(quorum: QuorumState, state: FollowerState) -> None:
    quorum.advance_high_watermark(min(state.leader_high_watermark, quorum.log.end.offset))


def handle_synced(quorum: QuorumState) -> None:
    # A snapshot, which may just have been installed, has only committed records.
    quorum.advance_high_watermark(quorum.log.start_offset)
    state = quorum.state
    if (
        isinstance(state, FollowerState)
        and state.waiting_for is WaitingFor.DISK
        and is_log_synced(quorum)
    ):
        state.waiting_for = WaitingFor.NOTHING
        _update_high_watermark(quorum, state)


def handle_fetch_failure(
    quorum: QuorumState, event: RequestFailed, request: FetchRequest, now: float
) -> None:
    state = quorum.state
    if isinstance(state, UnattachedState) and state.fetch is request:
        state.fetch, state.fetch_at = None, now + quorum.timing.retry_backoff
    elif (
        isinstance(state, FollowerState)
        and state.leader_id == event.destination
        and state.fetch is request
    ):
        state.fetch, state.waiting_for = None, WaitingFor.NOTHING
        _leader_disconnected(quorum, state, now)


# Liveness of the leader


def _reset_fetch_timeout(quorum: QuorumState, state: FollowerState, now: float) -> None:
    state.has_fetched, state.disconnected_at = True, None
    state.timeout_at = now + quorum.timing.fetch_timeout


def _leader_disconnected(quorum: QuorumState, state: FollowerState, now: float) -> None:
    """Keep fetching until it is this voter's turn to start an election.

    The connection failed, or the leader responded that it no longer leads. Waiting for the fetch
    timeout would only delay the election.
    """
    state.retry_at = now + quorum.timing.retry_backoff
    if state.disconnected_at is None:
        state.disconnected_at = now
        turns = 1 + quorum.election_turn(state.leader_id) + quorum.jitter() / 4
        election_at = now + quorum.timing.disconnect_grace * turns
        state.timeout_at = min(state.timeout_at, election_at)


# Snapshots


def handle_snapshot_progress(quorum: QuorumState, event: SnapshotProgress, now: float) -> None:
    state = quorum.state
    if (
        not isinstance(state, FollowerState)
        or event.epoch != quorum.epoch
        or event.leader_id != state.leader_id
        or state.waiting_for is not WaitingFor.SNAPSHOT
    ):
        return
    if event.failed:
        # If the leader is unreachable, the next fetch fails too.
        state.waiting_for, state.retry_at = WaitingFor.NOTHING, now + quorum.timing.retry_backoff
        return
    _reset_fetch_timeout(quorum, state, now)
    if event.done:
        _install_snapshot(quorum, state, event.snapshot)


def _install_snapshot(quorum: QuorumState, state: FollowerState, snapshot: OffsetAndEpoch) -> None:
    if snapshot.offset <= quorum.high_watermark:
        state.waiting_for = WaitingFor.NOTHING
        return
    # The high watermark advances when the snapshot is installed: until then the log may have
    # diverging records below the offset of the snapshot.
    state.waiting_for = WaitingFor.DISK
    quorum.effects.append(InstallSnapshot(snapshot))
