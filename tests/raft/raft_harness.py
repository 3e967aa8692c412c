"""A state machine on a log in memory: a test delivers events and compares the effects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.ids import NO_UUID
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.machine import Raft
from penstock.raft.messages import (
    AppendLeaderChange,
    AppendRecords,
    AppendVoters,
    BeginQuorumEpochRequest,
    Effect,
    ElectionState,
    Event,
    FetchRequest,
    FetchResponse,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SaveElectionState,
    SendRequest,
    SendResponse,
    Synced,
    Tick,
    Truncate,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.states import EpochState, FollowerState, Timing, UnattachedState
from penstock.raft.voters import Voter, VotersEntry, VoterSet, VoterSetHistory

TIMING = Timing()


@dataclass
class MemoryLog:
    """A RaftLog in memory: the list of its records' epochs."""

    epochs: list[int] = field(default_factory=list)
    synced: int = 0
    start: int = 0
    start_snapshot: OffsetAndEpoch | None = None
    latest_snapshot: OffsetAndEpoch | None = None
    voter_sets: VoterSetHistory = field(default_factory=lambda: VoterSetHistory(VoterSet(())))

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

    def install(self, snapshot: OffsetAndEpoch) -> None:
        """Replace all records by a snapshot."""
        self.epochs, self.start, self.synced = [], snapshot.offset, snapshot.offset
        self.start_snapshot = self.latest_snapshot = snapshot

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        if not self.epochs or epoch > self.epochs[-1]:
            return self.end
        not_above = [record_epoch for record_epoch in self.epochs if record_epoch <= epoch]
        return OffsetAndEpoch(self.start + len(not_above), not_above[-1] if not_above else epoch)


class Harness:
    """One machine, by default node 1 of three voters, on a MemoryLog.

    Effects on the log are carried out, except `Sync`: a test calls `sync`.
    """

    def __init__(
        self,
        *,
        voters: tuple[int, ...] = (1, 2, 3),
        node_id: int = 1,
        log: list[int] | None = None,
        epoch: int = 0,
        dynamic: VoterSet | None = None,
        local: Voter | None = None,
        auto_join: bool = False,
    ) -> None:
        """`dynamic` are the voters of the bootstrap checkpoint (KIP-853), instead of `voters`."""
        self.log = MemoryLog(list(log or []), len(log or []))
        self.log.voter_sets = VoterSetHistory(VoterSet.static(() if dynamic else voters))
        if dynamic is not None:
            self.log.voter_sets.restart(-1, VotersEntry(-1, 1, dynamic))
        known = None if dynamic is None else dynamic.get(node_id)
        self.local = local or known or Voter(node_id)
        state = ElectionState(max(epoch, self.log.end.epoch), None)
        self.raft = Raft(self.local, self.log, state, TIMING, lambda: 0.0, auto_join=auto_join)
        self.now = 100.0
        self.start_effects = self._carry_out(self.raft.start(self.now))
        # The effects of the last vote request.
        self.effects: list[Effect] = []

    def _carry_out(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case AppendLeaderChange(epoch, _granting, new_voters):
                    self.log.epochs.append(epoch)
                    if new_voters is not None:
                        self.log.epochs += [epoch, epoch]
                        self.log.voter_sets.add_voters(self.log.end.offset - 1, new_voters)
                case AppendVoters(epoch, voters, kraft_version):
                    if kraft_version is not None:
                        self.log.epochs.append(epoch)
                        self.log.voter_sets.add_kraft_version(
                            self.log.end.offset - 1, kraft_version
                        )
                    self.log.epochs.append(epoch)
                    self.log.voter_sets.add_voters(self.log.end.offset - 1, voters)
                case AppendRecords(records):
                    self.log.epochs += records
                case Truncate(offset):
                    del self.log.epochs[offset:]
                    self.log.voter_sets.truncate(offset)
                    self.log.synced = min(self.log.synced, offset)
                case _:
                    pass
        return effects

    def step(self, event: Event) -> list[Effect]:
        return self._carry_out(self.raft.step(event, self.now))

    def wait(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.step(Tick())

    def sync(self) -> list[Effect]:
        self.log.synced = self.log.end.offset
        return self.step(Synced())

    def is_in(self, *states: type[EpochState]) -> bool:
        return isinstance(self.raft.state, states)

    @property
    def fetch_in_flight(self) -> FetchRequest:
        state = self.raft.state
        assert isinstance(state, FollowerState | UnattachedState)
        assert state.fetch is not None
        return state.fetch

    # Frequent events

    def request_vote(
        self, candidate: int, epoch: int, end: tuple[int, int] = (0, 0), *, pre_vote: bool = False
    ) -> VoteResponse:
        """Return the response; `effects` has all effects of the step."""
        request = VoteRequest(epoch, OffsetAndEpoch(*end), pre_vote)
        self.effects = self.step(RequestReceived(candidate, request, "vote"))
        responses = [effect.response for effect in self.effects if isinstance(effect, SendResponse)]
        assert len(responses) == 1
        assert isinstance(responses[0], VoteResponse)
        return responses[0]

    def respond_to_votes(self, effects: list[Effect], granted: dict[int, bool]) -> list[Effect]:
        """Respond to the vote requests among the effects. Voters not in `granted` are
        unreachable."""
        results: list[Effect] = []
        for sent in [
            effect
            for effect in effects
            if isinstance(effect, SendRequest) and isinstance(effect.request, VoteRequest)
        ]:
            voter, request = sent.destination, sent.request
            assert isinstance(request, VoteRequest)
            if voter in granted:
                response = VoteResponse(ErrorCode.NONE, -1, request.epoch, granted[voter])
                results += self.step(ResponseReceived(voter, request, response))
            else:
                results += self.step(RequestFailed(voter, request))
        return results

    def elect(self) -> list[Effect]:
        """Elect this node by the votes of all. Return the effects of the last step."""
        all_voters = dict.fromkeys(self.raft.voters, True)
        effects = self.wait(3 * TIMING.election_timeout)
        effects = self.respond_to_votes(effects, all_voters)
        return self.respond_to_votes(effects, all_voters)

    def fetch(
        self,
        replica: int,
        offset: int,
        last_fetched_epoch: int,
        *,
        epoch: int | None = None,
        high_watermark: int = 0,
        directory_id: UUID = NO_UUID,
    ) -> list[Effect]:
        """Deliver a fetch of a replica."""
        request = FetchRequest(
            self.raft.epoch if epoch is None else epoch,
            offset,
            last_fetched_epoch,
            high_watermark,
            0.5,
            directory_id,
        )
        return self.step(RequestReceived(replica, request, f"fetch of {replica}"))

    def follow(self, leader: int, epoch: int) -> FetchRequest:
        """Make this node a follower. Return the fetch that it sends."""
        return sent_fetch(
            self.step(RequestReceived(leader, BeginQuorumEpochRequest(epoch), "begin"))
        )

    def respond_to_fetch(
        self, leader: int, request: FetchRequest, **fields: object
    ) -> list[Effect]:
        """The `records` of a response are a list of epochs, as a MemoryLog holds them."""
        response = replace(FetchResponse(ErrorCode.NONE, leader, request.epoch, 0), **fields)  # type: ignore[arg-type] # tests pass fields of the right types
        return self.step(ResponseReceived(leader, request, response))


def sent_fetch(effects: list[Effect]) -> FetchRequest:
    fetches = [
        effect.request
        for effect in effects
        if isinstance(effect, SendRequest) and isinstance(effect.request, FetchRequest)
    ]
    assert len(fetches) == 1, effects
    return fetches[0]


def saved_states(effects: list[Effect]) -> list[ElectionState]:
    return [effect.state for effect in effects if isinstance(effect, SaveElectionState)]


def fetch_responses(effects: list[Effect]) -> list[FetchResponse]:
    return [
        effect.response
        for effect in effects
        if isinstance(effect, SendResponse) and isinstance(effect.response, FetchResponse)
    ]
