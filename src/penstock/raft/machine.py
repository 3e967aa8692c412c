"""The step machine: an event and the time in, effects out. Owns the order of things; what they mean
is in the files of the roles."""

from __future__ import annotations

import math

from penstock.raft import elections, following, leading
from penstock.raft.core import Core
from penstock.raft.messages import (
    Answered,
    Appended,
    Asked,
    AskFetch,
    AskVote,
    Effect,
    ElectionState,
    Event,
    Resign,
    SaveState,
    SnapshotProgress,
    Synced,
    TellBegin,
    TellEnd,
    Tick,
    Unreachable,
)
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Role, Unattached, Waiting


class Raft(Core):
    """`start`, then `step` with every event. The first event after `deadline` may come late, never
    early."""

    def start(self, now: float) -> list[Effect]:
        """A voter that knows of no leader stands for election at once: if there is one, those whom
        it asks say so. Turns and jitter keep voters that start together apart."""
        self.become_unattached(
            self.epoch, now, self.timing.grace * (self.turn(self.node_id) / 2 + self.jitter())
        )
        if self.voters == (self.node_id,):
            self.become_unattached(self.epoch, now, 0)
        return self.step(Tick(), now)

    def step(self, event: Event, now: float) -> list[Effect]:
        before = (self.epoch, self.voted_id)
        self.effects = []
        self._react(event, now)
        role: Role | None = None
        while role is not self.role:
            role = self.role
            self._act(role, now)
        if (self.epoch, self.voted_id) != before:
            self.effects.insert(
                0, SaveState(ElectionState(self.epoch, self.voted_id, self.leader_id))
            )
        return self.effects

    def _react(self, event: Event, now: float) -> None:
        match event:
            case Asked(request=AskVote() as ask):
                elections.vote_asked(self, event, ask, now)
            case Asked(request=TellBegin() as tell):
                elections.begin_told(self, event, tell, now)
            case Asked(request=TellEnd() as tell):
                elections.end_told(self, event, tell, now)
            case Asked(request=AskFetch() as ask):
                leading.fetch_asked(self, event, ask, now)
            case Answered(request=AskVote() as ask, answer=answer):
                elections.vote_answered(self, event, ask, answer, now)
            case Answered(request=AskFetch() as ask, answer=answer):
                following.fetch_answered(self, event, ask, answer, now)
            case Answered(answer=answer):
                self.learn(answer.epoch, answer.leader_id, now)
            case Unreachable(request=AskVote() as ask):
                elections.vote_unreachable(self, event, ask, now)
            case Unreachable(request=AskFetch() as ask):
                following.fetch_unreachable(self, event, ask, now)
            case SnapshotProgress():
                following.snapshot_progressed(self, event, now)
            case Synced() if isinstance(self.role, Follower):
                following.synced(self, self.role)
            case Resign():
                leading.resign(self, now)
            case Tick() | Appended() | Synced() | Unreachable():
                pass

    def _act(self, role: Role, now: float) -> None:
        """What the role does by itself, now that something happened or time passed."""
        match role:
            case Follower():
                following.act(self, role, now)
            case Leader():
                leading.act(self, role, now)
            case _:
                elections.act(self, role, now)
                if isinstance(role, Unattached):
                    following.look_for_leader(self, role, now)

    @property
    def deadline(self) -> float:
        """When a Tick is wanted, if nothing comes before."""
        role = self.role
        match role:
            case Unattached():
                asks = (
                    not self.is_voter
                    and not self.resigned
                    and role.asked is None
                    and bool(self.seeds)
                )
                return min(role.election_at, role.ask_at if asks else math.inf)
            case Follower():
                return (
                    min(role.timeout_at, role.retry_at)
                    if role.waiting is Waiting.NOTHING
                    else role.timeout_at
                )
            case Prospective() | Candidate():
                return min(role.timeout_at, role.poll.retry_at)
            case Leader():
                held = min((held.deadline for held in role.held), default=math.inf)
                waits = any(progress.end_offset < 0 for progress in role.voters.values())
                return min(
                    leading.quorum_lost_at(self, role), held, role.begin_at if waits else math.inf
                )
