"""A machine with a log in memory, for transcripts: hand in an event, look at the effects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.errors import ErrorCode
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.machine import Raft
from penstock.raft.messages import (
    Answered,
    AppendLeaderChange,
    AppendRecords,
    Asked,
    AskFetch,
    AskVote,
    Effect,
    ElectionState,
    Event,
    FetchAnswer,
    Reply,
    SaveState,
    Send,
    Synced,
    TellBegin,
    Tick,
    Truncate,
    Unreachable,
    VoteAnswer,
)
from penstock.raft.roles import Follower, Role, Timing, Unattached

TIMING = Timing()


@dataclass
class MemoryLog:
    """Epochs of its records, one by one."""

    epochs: list[int] = field(default_factory=list)
    synced: int = 0
    start: int = 0
    start_snapshot: OffsetAndEpoch | None = None
    latest_snapshot: OffsetAndEpoch | None = None

    @property
    def start_offset(self) -> int:
        return self.start

    @property
    def end(self) -> OffsetAndEpoch:
        last = self.start_snapshot.epoch if self.start_snapshot else 0
        return OffsetAndEpoch(
            self.start + len(self.epochs), self.epochs[-1] if self.epochs else last
        )

    @property
    def synced_end(self) -> int:
        return self.synced

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        if not self.epochs or epoch > self.epochs[-1]:
            return self.end
        not_above = [one for one in self.epochs if one <= epoch]
        return OffsetAndEpoch(self.start + len(not_above), not_above[-1] if not_above else epoch)


class Bench:
    """Node 1 of some voters. The log does what effects say; `sync` when told."""

    def __init__(
        self,
        *,
        voters: tuple[int, ...] = (1, 2, 3),
        node_id: int = 1,
        log: list[int] | None = None,
        epoch: int = 0,
    ) -> None:
        self.log = MemoryLog(list(log or []), len(log or []))
        state = ElectionState(max(epoch, self.log.end.epoch), None)
        self.raft = Raft(node_id, voters, self.log, state, TIMING, lambda: 0.0)
        self.now = 100.0
        self.started = self.done(self.raft.start(self.now))

    def done(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case AppendLeaderChange(epoch):
                    self.log.epochs.append(epoch)
                case AppendRecords(records):
                    self.log.epochs += records
                case Truncate(offset):
                    del self.log.epochs[offset:]
                    self.log.synced = min(self.log.synced, offset)
                case _:
                    pass
        return effects

    def step(self, event: Event) -> list[Effect]:
        return self.done(self.raft.step(event, self.now))

    def wait(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.step(Tick())

    def sync(self) -> list[Effect]:
        self.log.synced = self.log.end.offset
        return self.step(Synced())

    def is_a(self, *kinds: type[Role]) -> bool:
        return isinstance(self.raft.role, kinds)

    @property
    def fetching(self) -> AskFetch:
        """The fetch that is under way."""
        role = self.raft.role
        assert isinstance(role, Follower | Unattached)
        assert role.asked is not None
        return role.asked

    # Short words for the usual events

    def ask_vote(
        self, candidate: int, epoch: int, end: tuple[int, int] = (0, 0), *, pre_vote: bool = False
    ) -> VoteAnswer:
        """The answer; what else happened is in `effects`."""
        self.effects = self.step(
            Asked(candidate, AskVote(epoch, OffsetAndEpoch(*end), pre_vote), "reply")
        )
        answers = [effect.answer for effect in self.effects if isinstance(effect, Reply)]
        assert len(answers) == 1
        assert isinstance(answers[0], VoteAnswer)
        return answers[0]

    def answer_votes(self, effects: list[Effect], granted: dict[int, bool]) -> list[Effect]:
        """Answers the vote requests among the effects; a voter that is not named cannot be
        reached."""
        found: list[Effect] = []
        for sent in [
            effect
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.request, AskVote)
        ]:
            if sent.to in granted:
                answer = VoteAnswer(ErrorCode.NONE, -1, sent.request.epoch, granted[sent.to])
                found += self.step(Answered(sent.to, sent.request, answer))
            else:
                found += self.step(Unreachable(sent.to, sent.request))
        return found

    def elect(self) -> list[Effect]:
        """Makes this node the leader by the votes of all. Gives the effects of its last step."""
        effects = self.wait(3 * TIMING.election_timeout)
        effects = self.answer_votes(effects, dict.fromkeys(self.raft.voters, True))
        return self.answer_votes(effects, dict.fromkeys(self.raft.voters, True))

    def fetch(
        self,
        replica: int,
        offset: int,
        last_epoch: int,
        *,
        epoch: int | None = None,
        high_watermark: int = 0,
    ) -> list[Effect]:
        asked = AskFetch(
            self.raft.epoch if epoch is None else epoch, offset, last_epoch, high_watermark, 0.5
        )
        return self.step(Asked(replica, asked, f"fetch of {replica}"))

    def follow(self, leader: int, epoch: int) -> AskFetch:
        """Makes this node a follower. Gives the fetch that it sends."""
        return the_fetch(self.step(Asked(leader, TellBegin(epoch), "reply")))

    def answer_fetch(self, leader: int, asked: AskFetch, **fields: object) -> list[Effect]:
        return self.step(Answered(leader, asked, fetch_answer(leader, asked.epoch, **fields)))


def fetch_answer(leader: int, epoch: int, **fields: object) -> FetchAnswer:
    """The records of a fetch are the epochs of a MemoryLog."""
    answer = FetchAnswer(ErrorCode.NONE, leader, epoch, 0)
    return replace(answer, **fields)  # type: ignore[arg-type] # the fields' types are the test's affair


def the_fetch(effects: list[Effect]) -> AskFetch:
    found = [
        effect.request
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.request, AskFetch)
    ]
    assert len(found) == 1, effects
    return found[0]


def saved(effects: list[Effect]) -> list[ElectionState]:
    return [effect.state for effect in effects if isinstance(effect, SaveState)]


def replies(effects: list[Effect]) -> list[FetchAnswer]:
    return [
        effect.answer
        for effect in effects
        if isinstance(effect, Reply) and isinstance(effect.answer, FetchAnswer)
    ]
