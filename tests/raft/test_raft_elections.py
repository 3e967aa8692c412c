"""Votes: a test for each law of `penstock.raft` that is about them (invariant 16)."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    Answered,
    Asked,
    AskVote,
    ElectionState,
    Reply,
    SaveState,
    Send,
    TellBegin,
    TellEnd,
    Unreachable,
    VoteAnswer,
)
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Unattached
from tests.raft.raft_bench import TIMING, Bench, saved

GRACE = TIMING.grace


def test_a_vote_and_its_epoch_are_saved_before_they_are_spoken_of() -> None:
    bench = Bench()
    assert bench.ask_vote(2, epoch=5, end=(0, 0)).granted
    assert bench.effects[0] == SaveState(ElectionState(5, 2))
    assert isinstance(bench.effects[1], Reply)


def test_a_candidate_saves_its_own_vote_before_it_asks_for_others() -> None:
    bench = Bench()
    effects = bench.answer_votes(bench.wait(3.0), {2: True})
    request = AskVote(1, OffsetAndEpoch(0, 0), pre_vote=False)
    assert effects[0] == SaveState(ElectionState(1, 1))
    assert effects[1:3] == [Send(2, request), Send(3, request)]


def test_one_vote_an_epoch() -> None:
    bench = Bench()
    assert bench.ask_vote(2, epoch=5).granted
    assert not bench.ask_vote(3, epoch=5).granted
    assert bench.ask_vote(2, epoch=5).granted, "the same candidate may ask again"
    assert bench.ask_vote(3, epoch=6).granted, "a new epoch, a new vote"


def test_no_vote_for_a_log_that_is_behind() -> None:
    bench = Bench(log=[1, 1, 3])
    assert not bench.ask_vote(2, epoch=5, end=(2, 3)).granted, "shorter"
    assert not bench.ask_vote(2, epoch=5, end=(9, 2)).granted, "longer, but of an earlier epoch"
    assert bench.ask_vote(2, epoch=5, end=(3, 3)).granted


def test_an_earlier_epoch_is_fenced_and_told_of_the_leader() -> None:
    bench = Bench()
    bench.follow(3, epoch=7)
    assert bench.ask_vote(2, epoch=6) == VoteAnswer(
        ErrorCode.FENCED_LEADER_EPOCH, 3, 7, granted=False
    )


def test_who_is_no_voter_gets_no_vote_and_gives_none() -> None:
    assert Bench().ask_vote(9, epoch=5).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert Bench(node_id=9).ask_vote(2, epoch=5).error is ErrorCode.INCONSISTENT_VOTER_SET


def test_a_leader_of_an_epoch_is_the_only_one_of_it() -> None:
    bench = Bench()
    bench.follow(3, epoch=7)
    assert not bench.ask_vote(2, epoch=7).granted


def test_a_quorum_of_one_leads_at_once() -> None:
    bench = Bench(voters=(1,))
    assert bench.is_a(Leader)
    assert bench.raft.epoch == 1


def test_a_fresh_voter_asks_for_pre_votes_at_once_and_raises_no_epoch() -> None:
    bench = Bench(log=[1, 1])
    effects = bench.started
    request = AskVote(1, OffsetAndEpoch(2, 1), pre_vote=True)
    assert effects == [Send(2, request), Send(3, request)]
    assert saved(effects) == []


def test_a_majority_of_pre_votes_makes_a_candidate_and_of_votes_a_leader() -> None:
    bench = Bench()
    effects = bench.answer_votes(bench.wait(3.0), {2: True})
    assert bench.is_a(Candidate)
    bench.answer_votes(effects, {3: True})
    assert bench.is_a(Leader)


def test_votes_of_an_earlier_epoch_do_not_count() -> None:
    bench = Bench()
    bench.answer_votes(bench.wait(3.0), {2: True})
    old = AskVote(0, OffsetAndEpoch(0, 0), pre_vote=False)
    bench.step(Answered(2, old, VoteAnswer(ErrorCode.NONE, -1, 0, granted=True)))
    assert bench.is_a(Candidate)


def test_who_hears_from_a_leader_gives_no_pre_vote() -> None:
    bench = Bench()
    asked = bench.follow(3, epoch=1)
    assert bench.ask_vote(2, epoch=1, pre_vote=True).granted, "it has not heard of it yet"
    bench.answer_fetch(3, asked)
    assert not bench.ask_vote(2, epoch=1, pre_vote=True).granted


def test_a_leader_gives_no_pre_vote() -> None:
    bench = Bench()
    bench.elect()
    assert bench.ask_vote(2, epoch=bench.raft.epoch, end=(9, 1), pre_vote=True) == VoteAnswer(
        ErrorCode.NONE, 1, 1, granted=False
    )


def test_who_lost_its_leader_gives_pre_votes_after_the_grace_and_stands_in_its_turn() -> None:
    bench = Bench(node_id=2)
    asked = bench.follow(3, epoch=1)
    bench.answer_fetch(3, asked)
    bench.step(Unreachable(3, bench.fetching))
    assert not bench.ask_vote(1, epoch=1, pre_vote=True).granted
    bench.wait(GRACE)
    assert bench.ask_vote(1, epoch=1, pre_vote=True).granted, "node 1 comes first"
    assert bench.is_a(Follower)
    bench.wait(GRACE)
    assert bench.is_a(Prospective)


def test_a_follower_that_reaches_its_leader_again_stays() -> None:
    bench = Bench()
    asked = bench.follow(3, epoch=1)
    bench.answer_fetch(3, asked)
    bench.step(Unreachable(3, bench.fetching))
    bench.wait(TIMING.retry)
    bench.answer_fetch(3, bench.fetching)
    bench.wait(10 * GRACE)
    assert bench.is_a(Follower)


def test_a_follower_that_hears_nothing_stands_after_the_fetch_timeout() -> None:
    bench = Bench()
    bench.follow(3, epoch=1)
    bench.wait(TIMING.fetch_timeout - 0.01)
    assert bench.is_a(Follower)
    bench.wait(0.01)
    assert bench.is_a(Prospective)


def test_refused_by_a_majority_it_follows_the_leader_that_it_lost() -> None:
    bench = Bench()
    bench.follow(3, epoch=1)
    effects = bench.wait(TIMING.fetch_timeout)
    bench.answer_votes(effects, {2: False, 3: False})
    assert bench.is_a(Follower)
    assert bench.raft.leader_id == 3


def test_a_refused_pre_vote_is_asked_for_again() -> None:
    bench = Bench()
    bench.answer_votes(bench.wait(3.0), {2: False})
    assert bench.is_a(Prospective)
    effects = bench.wait(TIMING.retry)
    assert [effect.to for effect in effects if isinstance(effect, Send)] == [2, 3]


def test_a_candidate_without_hope_pauses_and_does_not_lead() -> None:
    bench = Bench()
    effects = bench.answer_votes(bench.wait(3.0), {2: True})
    bench.answer_votes(effects, {2: False})
    assert not bench.is_a(Leader, Candidate)


def test_of_two_that_stand_together_the_lower_id_goes_first() -> None:
    bench = Bench(node_id=2)
    bench.wait(3.0)
    assert bench.is_a(Prospective)
    assert not bench.ask_vote(3, epoch=0, pre_vote=True).granted
    assert bench.ask_vote(1, epoch=0, pre_vote=True).granted
    bench.wait(GRACE)
    assert bench.ask_vote(3, epoch=0, pre_vote=True).granted, "not for ever"


def test_a_higher_epoch_ends_a_leadership() -> None:
    bench = Bench()
    bench.elect()
    bench.fetch(2, 1, 1, high_watermark=9)
    effects = bench.step(Asked(3, AskVote(9, OffsetAndEpoch(0, 0), pre_vote=False), "vote of 3"))
    assert bench.is_a(Unattached)
    assert saved(effects) == [ElectionState(9, None)]
    errors = {effect.reply: effect.answer.error for effect in effects if isinstance(effect, Reply)}
    assert errors == {"fetch of 2": ErrorCode.FENCED_LEADER_EPOCH, "vote of 3": ErrorCode.NONE}


@pytest.mark.parametrize(("successors", "pause"), [((1, 2), 0.0), ((2, 1), GRACE)])
def test_successors_of_a_leader_that_stops_stand_in_order(
    successors: tuple[int, ...], pause: float
) -> None:
    bench = Bench()
    asked = bench.follow(3, epoch=1)
    bench.answer_fetch(3, asked)
    bench.step(Asked(3, TellEnd(1, successors), "reply"))
    if pause:
        assert bench.is_a(Unattached)
        bench.wait(pause)
    assert bench.is_a(Prospective)


def test_word_of_an_earlier_leader_changes_nothing() -> None:
    bench = Bench()
    bench.follow(3, epoch=4)
    effects = bench.step(Asked(2, TellBegin(3), "reply"))
    assert [effect.answer.error for effect in effects if isinstance(effect, Reply)] == [
        ErrorCode.FENCED_LEADER_EPOCH
    ]
    assert bench.raft.leader_id == 3
