"""A follower, voter or observer: it fetches, writes, syncs, and fetches again; what it says it has
is synced. Owns the role Follower."""

from __future__ import annotations

from penstock.errors import ErrorCode, invariant
from penstock.raft.core import Core
from penstock.raft.log_view import OffsetAndEpoch, truncation_offset
from penstock.raft.messages import (
    Answer,
    Answered,
    AppendRecords,
    AskFetch,
    FetchAnswer,
    FetchSnapshot,
    InstallSnapshot,
    Send,
    SnapshotProgress,
    Sync,
    Truncate,
    Unreachable,
)
from penstock.raft.roles import Follower, Prospective, Unattached, Waiting


def act(core: Core, role: Follower, now: float) -> None:
    if now >= role.timeout_at:
        if core.is_voter and not core.resigned:
            core.become_prospective(now)
        else:
            core.become_unattached(core.epoch, now)
    elif role.waiting is Waiting.NOTHING and now >= role.retry_at:
        if may_fetch(core):
            role.waiting, role.asked = Waiting.ANSWER, next_fetch(core)
            core.effects.append(Send(role.leader_id, role.asked))
        else:
            role.waiting = Waiting.DISK
            core.effects.append(Sync())


def may_fetch(core: Core) -> bool:
    """A fetch says that everything before its offset is here for good."""
    return core.log.synced_end == core.log.end.offset


def next_fetch(core: Core) -> AskFetch:
    end = core.log.end
    return AskFetch(core.epoch, end.offset, end.epoch, core.high_watermark, core.timing.fetch_wait)


def look_for_leader(core: Core, role: Unattached, now: float) -> None:
    """An observer asks one voter after the other, by a fetch: whoever is not the leader says who
    is."""
    if (
        core.is_voter
        or core.resigned
        or role.asked is not None
        or now < role.ask_at
        or not core.seeds
    ):
        return
    voter = core.seeds[int(core.jitter() * len(core.seeds))]
    role.asked = next_fetch(core)
    core.effects.append(Send(voter, role.asked))


# The answer


def fetch_answered(
    core: Core, answered: Answered, ask: AskFetch, answer: Answer, now: float
) -> None:
    role = core.role
    if isinstance(role, Unattached) and role.asked is ask:
        role.asked, role.ask_at = None, now + core.timing.retry
        core.learn(answer.epoch, answer.leader_id, now)
        return
    core.learn(answer.epoch, answer.leader_id, now)
    role = core.role
    if (
        isinstance(role, Prospective)
        and role.leader_id == answered.sender
        and _is_success(core, ask, answer)
    ):
        core.become_follower(core.epoch, answered.sender, now)
        return
    if not isinstance(role, Follower) or role.asked is not ask:
        return
    role.asked, role.waiting = None, Waiting.NOTHING
    if isinstance(answer, FetchAnswer) and _is_success(core, ask, answer):
        _heard(core, role, now)
        core.lost_elections = 0
        _take(core, role, answer)
    elif (
        answer.error is ErrorCode.BROKER_NOT_AVAILABLE
        or answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    ):
        _lost(core, role, now)
    else:
        role.retry_at = now + core.timing.retry


def _is_success(core: Core, ask: AskFetch, answer: Answer) -> bool:
    return answer.error is ErrorCode.NONE and ask.epoch == answer.epoch == core.epoch


def _take(core: Core, role: Follower, answer: FetchAnswer) -> None:
    if answer.diverging is not None:
        offset = truncation_offset(core.log, answer.diverging)
        invariant(
            offset >= core.high_watermark,
            (
                f"the leader asks to truncate the metadata log to {offset}, but everything before "
                f"{core.high_watermark} is committed"
            ),
        )
        role.waiting = Waiting.DISK
        core.effects.append(Truncate(offset))
    elif answer.snapshot is not None:
        role.waiting = Waiting.SNAPSHOT
        core.effects.append(FetchSnapshot(role.leader_id, core.epoch, answer.snapshot))
    else:
        # The logs match. Before that the leader's watermark says nothing of what is here: a log
        # that was cut may have to be cut again.
        role.leader_high_watermark = answer.high_watermark
        if len(answer.records):
            role.waiting = Waiting.DISK
            core.effects += [AppendRecords(answer.records), Sync()]
        else:
            _advance(core, role)


def _advance(core: Core, role: Follower) -> None:
    core.advance(min(role.leader_high_watermark, core.log.end.offset))


def synced(core: Core, role: Follower) -> None:
    if role.waiting is Waiting.DISK and may_fetch(core):
        role.waiting = Waiting.NOTHING
        _advance(core, role)


# The leader, heard and lost


def _heard(core: Core, role: Follower, now: float) -> None:
    role.heard, role.lost_at = True, None
    role.timeout_at = now + core.timing.fetch_timeout


def _lost(core: Core, role: Follower, now: float) -> None:
    """The connection closed, or the leader says that it is none: fetching is tried again until it
    is this voter's turn to stand."""
    role.retry_at = now + core.timing.retry
    if role.lost_at is None:
        role.lost_at = now
        pause = core.timing.grace * (1 + core.turn(role.leader_id) + core.jitter() / 4)
        role.timeout_at = min(role.timeout_at, now + pause)


def fetch_unreachable(core: Core, event: Unreachable, ask: AskFetch, now: float) -> None:
    role = core.role
    if isinstance(role, Unattached) and role.asked is ask:
        role.asked, role.ask_at = None, now + core.timing.retry
    elif isinstance(role, Follower) and role.leader_id == event.sender and role.asked is ask:
        role.asked, role.waiting = None, Waiting.NOTHING
        _lost(core, role, now)


# Snapshots


def snapshot_progressed(core: Core, event: SnapshotProgress, now: float) -> None:
    role = core.role
    is_current = (
        event.epoch == core.epoch
        and isinstance(role, Follower)
        and role.leader_id == event.leader_id
    )
    if not is_current or not isinstance(role, Follower) or role.waiting is not Waiting.SNAPSHOT:
        return
    if event.failed:
        role.waiting = Waiting.NOTHING
        _lost(core, role, now)
        return
    _heard(core, role, now)
    if event.done:
        install(core, role, event.snapshot)


def install(core: Core, role: Follower, snapshot: OffsetAndEpoch) -> None:
    if snapshot.offset <= core.high_watermark:
        role.waiting = Waiting.NOTHING
        return
    role.waiting = Waiting.DISK
    core.effects.append(InstallSnapshot(snapshot))
    core.advance(snapshot.offset)
