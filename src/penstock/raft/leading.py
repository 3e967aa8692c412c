"""A leader: it answers fetches, counts how far voters have come, and steps down where it cannot be
one. Owns the role Leader."""

from __future__ import annotations

from penstock.errors import ErrorCode
from penstock.raft.core import Core
from penstock.raft.log_view import Behind, Diverging, OffsetAndEpoch, mismatch
from penstock.raft.messages import Asked, AskFetch, FetchAnswer, Reply, Send, TellBegin, TellEnd
from penstock.raft.roles import Held, Leader, Progress

# A leader steps down when no majority fetched for so many fetch timeouts: later than its followers
# give it up (Kafka's factor).
CHECK_QUORUM_FACTOR = 1.5
# How often a voter that has not fetched yet is told who leads: so many times in a fetch timeout.
BEGINS_PER_TIMEOUT = 4


def act(core: Core, role: Leader, now: float) -> None:
    if now >= quorum_lost_at(core, role):
        core.become_unattached(core.epoch, now, core.timing.election_timeout * core.jitter())
        return
    _count(core, role)
    _answer_held(core, role, now)
    if now >= role.begin_at:
        role.begin_at = now + core.timing.fetch_timeout / BEGINS_PER_TIMEOUT
        for voter, progress in role.voters.items():
            if progress.end_offset < 0:
                core.effects.append(Send(voter, TellBegin(core.epoch)))


def quorum_lost_at(core: Core, role: Leader) -> float:
    """When too few voters have fetched for too long; never for a quorum of one."""
    needed = len(core.voters) // 2
    if needed == 0:
        return float("inf")
    latest = sorted((progress.fetched_at for progress in role.voters.values()), reverse=True)
    return latest[needed - 1] + core.timing.fetch_timeout * CHECK_QUORUM_FACTOR


# The high watermark


def own_end(core: Core) -> int:
    """The leader's disk is one of the majority's: what is not synced on it does not count."""
    return core.log.synced_end


def may_commit(role: Leader, offset: int) -> bool:
    """An earlier epoch's entry on a majority may still be overwritten; one of this epoch's may not,
    nor what is before it."""
    return offset > role.epoch_start


def _count(core: Core, role: Leader) -> None:
    ends = sorted(
        [own_end(core), *(progress.end_offset for progress in role.voters.values())], reverse=True
    )
    offset = ends[len(core.voters) // 2]
    if may_commit(role, offset):
        core.advance(offset)


# Fetches


def fetch_asked(core: Core, asked: Asked, ask: AskFetch, now: float) -> None:
    role, error = core.role, fetch_error(core, ask.epoch)
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        core.effects.append(Reply(asked.reply, FetchAnswer(error, core.known_leader, core.epoch)))
        return
    progress = _progress(core, role, asked.sender)
    progress.fetched_at = now
    match mismatch(core.log, ask.offset, ask.last_epoch):
        case Diverging(end):
            core.effects.append(Reply(asked.reply, _answer(core, diverging=end)))
        case Behind(snapshot):
            core.effects.append(Reply(asked.reply, _answer(core, snapshot=snapshot)))
        case None:
            progress.end_offset = ask.offset
            if ask.offset == core.log.end.offset:
                progress.caught_up_at = now
            role.held.append(Held(asked.sender, ask, asked.reply, now + ask.max_wait_s))


def fetch_error(core: Core, epoch: int) -> ErrorCode:
    if core.resigned:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(core.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _progress(core: Core, role: Leader, sender: int) -> Progress:
    if sender in role.voters:
        return role.voters[sender]
    return (
        Progress()
        if sender < 0 or sender == core.node_id
        else role.observers.setdefault(sender, Progress())
    )


def _answer_held(core: Core, role: Leader, now: float) -> None:
    """News are records, or a watermark beyond what the follower knows."""
    end, waiting = core.log.end.offset, role.held
    role.held = []
    for held in waiting:
        is_news = end > held.request.offset or core.high_watermark > held.request.high_watermark
        if is_news or now >= held.deadline:
            core.effects.append(Reply(held.reply, _answer(core, read_from=held.request.offset)))
        else:
            role.held.append(held)


def _answer(
    core: Core,
    *,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
    read_from: int | None = None,
) -> FetchAnswer:
    return FetchAnswer(
        ErrorCode.NONE,
        core.node_id,
        core.epoch,
        core.high_watermark,
        diverging,
        snapshot,
        read_from=read_from,
    )


# The end


def resign(core: Core, now: float) -> None:
    """Those that have the most stand for election first."""
    role = core.role
    core.resigned = True
    if isinstance(role, Leader):
        successors = sorted(role.voters, key=lambda voter: -role.voters[voter].end_offset)
        core.effects += [
            Send(voter, TellEnd(core.epoch, tuple(successors))) for voter in role.voters
        ]
    core.become_unattached(core.epoch, now)
