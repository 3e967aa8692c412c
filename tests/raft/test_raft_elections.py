"""Elections: a test for each law of `penstock.raft.machine` about votes and epochs (rule 16)."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    BeginQuorumEpochRequest,
    ElectionState,
    EndQuorumEpochRequest,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SaveElectionState,
    SendRequest,
    SendResponse,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.states import (
    CandidateState,
    FollowerState,
    LeaderState,
    ProspectiveState,
    UnattachedState,
)
from tests.raft.raft_harness import TIMING, Harness, saved_states

GRACE = TIMING.disconnect_grace


def test_vote_and_epoch_are_saved_before_the_response() -> None:
    harness = Harness()
    assert harness.request_vote(2, epoch=5, end=(0, 0)).granted
    assert harness.effects[0] == SaveElectionState(ElectionState(5, 2))
    assert isinstance(harness.effects[1], SendResponse)


def test_candidate_saves_its_own_vote_before_it_requests_votes() -> None:
    harness = Harness()
    effects = harness.respond_to_votes(harness.wait(3.0), {2: True})
    request = VoteRequest(1, OffsetAndEpoch(0, 0), pre_vote=False)
    assert effects[0] == SaveElectionState(ElectionState(1, 1))
    assert effects[1:3] == [SendRequest(2, request), SendRequest(3, request)]


def test_one_vote_per_epoch() -> None:
    harness = Harness()
    assert harness.request_vote(2, epoch=5).granted
    assert not harness.request_vote(3, epoch=5).granted
    assert harness.request_vote(2, epoch=5).granted, "the same candidate may ask again"
    assert harness.request_vote(3, epoch=6).granted, "a new epoch, a new vote"


def test_no_vote_for_a_candidate_whose_log_is_behind() -> None:
    harness = Harness(log=[1, 1, 3])
    assert not harness.request_vote(2, epoch=5, end=(2, 3)).granted, "shorter"
    assert not harness.request_vote(2, epoch=5, end=(9, 2)).granted, (
        "longer, but of an earlier epoch"
    )
    assert harness.request_vote(2, epoch=5, end=(3, 3)).granted


def test_request_of_an_earlier_epoch_is_fenced_and_learns_the_leader() -> None:
    harness = Harness()
    harness.follow(3, epoch=7)
    assert harness.request_vote(2, epoch=6) == VoteResponse(
        ErrorCode.FENCED_LEADER_EPOCH, 3, 7, granted=False
    )


def test_observers_neither_get_nor_grant_votes() -> None:
    assert Harness().request_vote(9, epoch=5).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert Harness(node_id=9).request_vote(2, epoch=5).error is ErrorCode.INCONSISTENT_VOTER_SET


def test_no_vote_in_an_epoch_that_has_a_leader() -> None:
    harness = Harness()
    harness.follow(3, epoch=7)
    assert not harness.request_vote(2, epoch=7).granted


def test_single_voter_leads_immediately() -> None:
    harness = Harness(voters=(1,))
    assert harness.is_in(LeaderState)
    assert harness.raft.epoch == 1


def test_starting_voter_requests_pre_votes_without_raising_the_epoch() -> None:
    harness = Harness(log=[1, 1])
    effects = harness.start_effects
    request = VoteRequest(1, OffsetAndEpoch(2, 1), pre_vote=True)
    assert effects == [SendRequest(2, request), SendRequest(3, request)]
    assert saved_states(effects) == []


def test_majority_of_pre_votes_makes_a_candidate_and_of_votes_a_leader() -> None:
    harness = Harness()
    effects = harness.respond_to_votes(harness.wait(3.0), {2: True})
    assert harness.is_in(CandidateState)
    harness.respond_to_votes(effects, {3: True})
    assert harness.is_in(LeaderState)


def test_votes_of_an_earlier_epoch_do_not_count() -> None:
    harness = Harness()
    harness.respond_to_votes(harness.wait(3.0), {2: True})
    old = VoteRequest(0, OffsetAndEpoch(0, 0), pre_vote=False)
    harness.step(ResponseReceived(2, old, VoteResponse(ErrorCode.NONE, -1, 0, granted=True)))
    assert harness.is_in(CandidateState)


def test_follower_that_fetched_from_a_leader_refuses_pre_votes() -> None:
    harness = Harness()
    request = harness.follow(3, epoch=1)
    assert harness.request_vote(2, epoch=1, pre_vote=True).granted, "it has not fetched from it yet"
    harness.respond_to_fetch(3, request)
    assert not harness.request_vote(2, epoch=1, pre_vote=True).granted


def test_leader_refuses_pre_votes() -> None:
    harness = Harness()
    harness.elect()
    assert harness.request_vote(
        2, epoch=harness.raft.epoch, end=(9, 1), pre_vote=True
    ) == VoteResponse(ErrorCode.NONE, 1, 1, granted=False)


def test_disconnected_follower_grants_pre_votes_after_the_grace_and_stands_in_turn() -> None:
    harness = Harness(node_id=2)
    request = harness.follow(3, epoch=1)
    harness.respond_to_fetch(3, request)
    harness.step(RequestFailed(3, harness.fetch_in_flight))
    assert not harness.request_vote(1, epoch=1, pre_vote=True).granted
    harness.wait(GRACE)
    assert harness.request_vote(1, epoch=1, pre_vote=True).granted, "node 1 comes first"
    assert harness.is_in(FollowerState)
    harness.wait(GRACE)
    assert harness.is_in(ProspectiveState)


def test_follower_that_reconnects_to_its_leader_stays_follower() -> None:
    harness = Harness()
    request = harness.follow(3, epoch=1)
    harness.respond_to_fetch(3, request)
    harness.step(RequestFailed(3, harness.fetch_in_flight))
    harness.wait(TIMING.retry_backoff)
    harness.respond_to_fetch(3, harness.fetch_in_flight)
    harness.wait(10 * GRACE)
    assert harness.is_in(FollowerState)


def test_follower_becomes_prospective_after_the_fetch_timeout() -> None:
    harness = Harness()
    harness.follow(3, epoch=1)
    harness.wait(TIMING.fetch_timeout - 0.01)
    assert harness.is_in(FollowerState)
    harness.wait(0.01)
    assert harness.is_in(ProspectiveState)


def test_prospective_rejected_by_a_majority_follows_its_last_leader() -> None:
    harness = Harness()
    harness.follow(3, epoch=1)
    effects = harness.wait(TIMING.fetch_timeout)
    harness.respond_to_votes(effects, {2: False, 3: False})
    assert harness.is_in(FollowerState)
    assert harness.raft.leader_id == 3


def test_rejected_pre_vote_is_requested_again() -> None:
    harness = Harness()
    harness.respond_to_votes(harness.wait(3.0), {2: False})
    assert harness.is_in(ProspectiveState)
    effects = harness.wait(TIMING.retry_backoff)
    assert [effect.destination for effect in effects if isinstance(effect, SendRequest)] == [2, 3]


def test_candidate_that_cannot_win_backs_off() -> None:
    harness = Harness()
    effects = harness.respond_to_votes(harness.wait(3.0), {2: True})
    harness.respond_to_votes(effects, {2: False})
    assert not harness.is_in(LeaderState, CandidateState)


def test_of_two_prospective_voters_the_lower_id_goes_first() -> None:
    harness = Harness(node_id=2)
    harness.wait(3.0)
    assert harness.is_in(ProspectiveState)
    assert not harness.request_vote(3, epoch=0, pre_vote=True).granted
    assert harness.request_vote(1, epoch=0, pre_vote=True).granted
    harness.wait(GRACE)
    assert harness.request_vote(3, epoch=0, pre_vote=True).granted, "but only during the grace"


def test_higher_epoch_ends_a_leadership() -> None:
    harness = Harness()
    harness.elect()
    harness.fetch(2, 1, 1, high_watermark=9)
    effects = harness.step(
        RequestReceived(3, VoteRequest(9, OffsetAndEpoch(0, 0), pre_vote=False), "vote of 3")
    )
    assert harness.is_in(UnattachedState)
    assert saved_states(effects) == [ElectionState(9, None)]
    errors = {
        effect.reply_to: effect.response.error
        for effect in effects
        if isinstance(effect, SendResponse)
    }
    assert errors == {"fetch of 2": ErrorCode.FENCED_LEADER_EPOCH, "vote of 3": ErrorCode.NONE}


@pytest.mark.parametrize(("successors", "pause"), [((1, 2), 0.0), ((2, 1), GRACE)])
def test_successors_of_a_resigned_leader_stand_in_order(
    successors: tuple[int, ...], pause: float
) -> None:
    harness = Harness()
    request = harness.follow(3, epoch=1)
    harness.respond_to_fetch(3, request)
    harness.step(RequestReceived(3, EndQuorumEpochRequest(1, successors), "reply"))
    if pause:
        assert harness.is_in(UnattachedState)
        harness.wait(pause)
    assert harness.is_in(ProspectiveState)


def test_begin_quorum_epoch_of_an_earlier_epoch_changes_nothing() -> None:
    harness = Harness()
    harness.follow(3, epoch=4)
    effects = harness.step(RequestReceived(2, BeginQuorumEpochRequest(3), "reply"))
    assert [effect.response.error for effect in effects if isinstance(effect, SendResponse)] == [
        ErrorCode.FENCED_LEADER_EPOCH
    ]
    assert harness.raft.leader_id == 3
