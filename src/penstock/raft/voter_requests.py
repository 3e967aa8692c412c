"""What a follower asks the leader for, as a voter or as an observer that wants to be one
(KIP-853)."""

from __future__ import annotations

from penstock.errors import ErrorCode
from penstock.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    SendRequest,
    UpdateVoterRequest,
)
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import FollowerState
from penstock.raft.voters import RECONFIGURATION_LEVEL


def poll_voter_request(quorum: QuorumState, state: FollowerState, now: float) -> None:
    """Send the leader what it must know of this replica, or ask it to change the voters.

    Called at every step; fetches make enough of them.
    """
    if not state.has_fetched or now < state.update_voter_at or quorum.has_resigned:
        return
    state.update_voter_at = now + quorum.timing.fetch_timeout
    request = _voter_request(quorum, state)
    if request is not None:
        quorum.effects.append(SendRequest(state.leader_id, request))


def _voter_request(quorum: QuorumState, state: FollowerState) -> Request | None:
    """A voter announces itself if the log has other endpoints, or with kraft.version 0 once to each
    leader. With controller.quorum.auto.join.enable an observer asks to be added; before that, that
    the voter with its id is removed, which had another directory."""
    local, is_dynamic = quorum.local, quorum.kraft_version >= RECONFIGURATION_LEVEL
    if not local.endpoints:
        return None
    found = quorum.voter_set.get(local.id)
    if quorum.is_voter:
        is_known = found == local if is_dynamic else state.has_updated_voter
        return None if is_known else UpdateVoterRequest(quorum.epoch, local)
    if not is_dynamic or not quorum.auto_join:
        return None
    if found is not None:
        return RemoveVoterRequest(found.key)
    return AddVoterRequest(local, ack_when_committed=False)


def handle_update_voter_response(
    quorum: QuorumState, leader_id: int, request: UpdateVoterRequest, error: ErrorCode
) -> None:
    state = quorum.state
    if (
        isinstance(state, FollowerState)
        and state.leader_id == leader_id
        and request.epoch == quorum.epoch
        and error is ErrorCode.NONE
    ):
        state.has_updated_voter = True
