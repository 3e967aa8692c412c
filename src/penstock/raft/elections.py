"""Votes: when they are given, and when they are asked for. Owns the roles Unattached, Prospective
and Candidate."""

from __future__ import annotations

from penstock.errors import ErrorCode
from penstock.raft.core import Core
from penstock.raft.messages import (
    NO_LEADER,
    Answer,
    Answered,
    Asked,
    AskVote,
    Reply,
    Send,
    TellBegin,
    TellEnd,
    Unreachable,
    VoteAnswer,
)
from penstock.raft.roles import Candidate, Follower, Leader, Poll, Prospective, Unattached

# Giving


def vote_asked(core: Core, asked: Asked, ask: AskVote, now: float) -> None:
    error = _voter_error(core, asked.sender, ask.epoch)
    granted = False
    if error is ErrorCode.NONE:
        core.learn(ask.epoch, NO_LEADER, now)
        granted = _grants(core, asked.sender, ask, now)
        if granted and not ask.pre_vote:
            core.voted_id = asked.sender
            core.become_unattached(core.epoch, now)
    core.effects.append(
        Reply(asked.reply, VoteAnswer(error, core.known_leader, core.epoch, granted))
    )


def _voter_error(core: Core, sender: int, epoch: int) -> ErrorCode:
    if core.resigned:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not core.is_voter or sender not in core.others:
        return ErrorCode.INCONSISTENT_VOTER_SET
    return ErrorCode.NONE


def _grants(core: Core, candidate: int, ask: AskVote, now: float) -> bool:
    if ask.end.rank < core.log.end.rank:
        return False
    if ask.pre_vote:
        return _would_vote(core, candidate, ask, now)
    if core.leader_id is not None or isinstance(core.role, Candidate):
        return False
    return core.voted_id in (None, candidate)


def _would_vote(core: Core, candidate: int, ask: AskVote, now: float) -> bool:
    """Who hears from a leader would not. Of two that stand at the same moment with equal logs, the
    one with the lower id goes first."""
    role = core.role
    if isinstance(role, Leader):
        return False
    if isinstance(role, Follower):
        is_lost = role.lost_at is not None and now >= role.lost_at + core.timing.grace
        return is_lost or not role.heard
    if isinstance(role, Prospective | Candidate):
        is_first = candidate < core.node_id or ask.end.rank > core.log.end.rank
        return is_first or now >= role.since + core.timing.grace
    return True


# Asking


def act(core: Core, role: Unattached | Prospective | Candidate, now: float) -> None:
    if isinstance(role, Unattached):
        if now >= role.election_at:
            core.become_prospective(now)
        return
    if role.poll.won:
        if isinstance(role, Prospective):
            core.become_candidate(now)
        else:
            core.become_leader(
                now, tuple(voter for voter in core.voters if voter in role.poll.granted)
            )
    elif isinstance(role, Prospective) and (
        role.poll.refused_by_majority or now >= role.timeout_at
    ):
        _give_up(core, role, now)
    elif isinstance(role, Candidate) and (role.poll.hopeless or now >= role.timeout_at):
        core.become_unattached(core.epoch, now, core.election_pause())
    else:
        _ask(core, role, now)


def _give_up(core: Core, role: Prospective, now: float) -> None:
    if role.leader_id is None:
        core.become_unattached(core.epoch, now, core.election_pause())
    else:
        core.become_follower(core.epoch, role.leader_id, now)


def _ask(core: Core, role: Prospective | Candidate, now: float) -> None:
    poll, pre_vote = role.poll, isinstance(role, Prospective)
    if now < poll.retry_at:
        return
    request = AskVote(core.epoch, core.log.end, pre_vote)
    for voter in core.others:
        if voter not in poll.granted and voter not in poll.asked:
            poll.asked.add(voter)
            poll.refused.discard(voter)
            poll.unreachable.discard(voter)
            core.effects.append(Send(voter, request))
    poll.retry_at = float("inf")


def vote_answered(core: Core, answered: Answered, ask: AskVote, answer: Answer, now: float) -> None:
    core.learn(answer.epoch, answer.leader_id, now)
    poll = _poll_of(core, ask)
    if poll is None:
        return
    poll.asked.discard(answered.sender)
    if isinstance(answer, VoteAnswer) and answer.error is ErrorCode.NONE and answer.granted:
        poll.granted.add(answered.sender)
    elif answer.error is ErrorCode.BROKER_NOT_AVAILABLE:
        _ask_again(core, poll, answered.sender, ask, now)
    else:
        poll.refused.add(answered.sender)
        _ask_again_later(core, poll, ask, now)


def vote_unreachable(core: Core, event: Unreachable, ask: AskVote, now: float) -> None:
    poll = _poll_of(core, ask)
    if poll is not None:
        poll.asked.discard(event.sender)
        _ask_again(core, poll, event.sender, ask, now)


def _poll_of(core: Core, ask: AskVote) -> Poll | None:
    """The election that the answer belongs to, if it is still under way."""
    role = core.role
    is_current = ask.epoch == core.epoch and isinstance(
        role, Prospective if ask.pre_vote else Candidate
    )
    return role.poll if is_current and isinstance(role, Prospective | Candidate) else None


def _ask_again(core: Core, poll: Poll, voter: int, ask: AskVote, now: float) -> None:
    poll.unreachable.add(voter)
    _ask_again_later(core, poll, ask, now)


def _ask_again_later(core: Core, poll: Poll, ask: AskVote, now: float) -> None:
    """What one would do may change from moment to moment: a pre-vote is asked for again. A vote
    that was refused stays so."""
    if ask.pre_vote:
        poll.retry_at = min(poll.retry_at, now + core.timing.retry)


# Word of a leader


def begin_told(core: Core, asked: Asked, tell: TellBegin, now: float) -> None:
    error = _voter_error(core, asked.sender, tell.epoch)
    if error is ErrorCode.NONE:
        core.learn(tell.epoch, asked.sender, now)
        role = core.role
        if isinstance(role, Prospective) and role.leader_id == asked.sender:
            core.become_follower(core.epoch, asked.sender, now)
    core.effects.append(Reply(asked.reply, Answer(error, core.known_leader, core.epoch)))


def end_told(core: Core, asked: Asked, tell: TellEnd, now: float) -> None:
    """The first of the successors stands for election at once, the others one after the other
    should it not win."""
    error = _voter_error(core, asked.sender, tell.epoch)
    if error is ErrorCode.NONE:
        core.learn(tell.epoch, asked.sender, now)
        role = core.role
        if isinstance(role, Follower | Prospective) and role.leader_id == asked.sender:
            turn = (
                tell.successors.index(core.node_id)
                if core.node_id in tell.successors
                else len(tell.successors)
            )
            core.become_unattached(core.epoch, now, turn * core.timing.grace)
    core.effects.append(Reply(asked.reply, Answer(error, core.known_leader, core.epoch)))
