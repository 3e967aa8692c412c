"""A node of the raft explorer: the machine, what its disk holds, and what the shell does with
effects.

As `node.quorum.driver` does, a node carries out effects in order and delivers the next event when
they are done. It can be told to crash after any effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.raft.log import OffsetAndEpoch
from penstock.raft.machine import Raft
from penstock.raft.messages import (
    AddVoterRequest,
    AppendLeaderChange,
    AppendRecords,
    AppendVoters,
    AskSupportedVersions,
    Commit,
    ElectionState,
    Event,
    FetchResponse,
    FetchSnapshot,
    InstallSnapshot,
    RemoveVoterRequest,
    Request,
    RequestReceived,
    Resign,
    Response,
    SaveElectionState,
    SendRequest,
    SendResponse,
    Sync,
    Synced,
    Truncate,
    UpgradeKRaftVersionRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.states import LeaderState, Timing
from penstock.raft.voters import ReplicaKey, Voter
from penstock.sim.explore.raft_log import Entry

if TYPE_CHECKING:
    from penstock.sim.explore.raft import RaftWalk

TIMING = Timing()


class Message(NamedTuple):
    """A request, or with `response` the response to it. `life` is the life of the process that sent
    the request: a later process gets no response to it. The sender of an orphan has given up. A
    request has failed if its destination crashed before it responded."""

    sender: int
    life: int
    destination: int
    request: Request
    response: Response | None = None
    is_orphan: bool = False
    has_failed: bool = False


class Download(NamedTuple):
    """A snapshot that a node downloads, in `parts` more parts."""

    node: int
    life: int
    effect: FetchSnapshot
    parts: int


class VersionsQuestion(NamedTuple):
    """A leader asks a controller which levels of kraft.version it supports (ApiVersions)."""

    node: int
    life: int
    voter: Voter


class RaftNode:
    __slots__ = (
        "_handlers",
        "_walk",
        "applied",
        "committed",
        "effects_left",
        "id",
        "life",
        "local",
        "log",
        "now",
        "raft",
        "saved",
        "step_voters",
        "sync_end",
        "unanswered",
    )

    def __init__(self, walk: RaftWalk, node_id: int) -> None:
        self._walk = walk
        self.id = node_id
        self.local = walk.voter(node_id)
        self.raft: Raft | None = None
        # Counts processes; it also changes when one ends.
        self.life = 0
        # Seconds of this node's monotonic clock.
        self.now = 0.0
        # On disk: the log, the quorum-state file and the saved committed offset.
        self.log = walk.new_log(self.local)
        self.saved = ElectionState(0, None)
        self.committed = 0
        # The newest voters in the log when the current step began.
        self.step_voters = self.log.voter_sets.latest.voters
        # How far the node has applied the log.
        self.applied = 0
        # The end offset that a running sync covers.
        self.sync_end: int | None = None
        # Requests that this process has not responded to, by identity.
        self.unanswered: dict[int, Message] = {}
        # The node crashes after this many more effects.
        self.effects_left: int | None = None
        self._handlers: dict[type, Any] = {
            SendRequest: self._send_request,
            SendResponse: self._send_response,
            Sync: self._sync,
            AppendRecords: self._append_records,
            Commit: self._commit,
            SaveElectionState: self._save,
            AppendLeaderChange: self._append_leader_change,
            Truncate: self._truncate,
            FetchSnapshot: self._fetch_snapshot,
            InstallSnapshot: self._install,
            AppendVoters: self._append_voters,
            AskSupportedVersions: self._ask_supported_versions,
        }

    @property
    def is_leader(self) -> bool:
        return self.raft is not None and isinstance(self.raft.state, LeaderState)

    # Processes

    def start(self) -> None:
        """Open the log, load the latest snapshot, apply what is known to be committed."""
        self.life += 1
        self.log.recover()
        latest = self.log.latest_snapshot
        raft = Raft(
            self.local,
            self.log,
            self.saved,
            TIMING,
            self._walk.choices.fraction,
            self._walk.bootstrap_ids,
            min(self.committed, self.log.end_offset),
            auto_join=self._walk.auto_join,
        )
        self.raft = raft
        self.applied = 0
        if latest is not None:
            self._load(latest)
        self._apply(raft.high_watermark)
        self.step_voters = self.log.voter_sets.latest.voters
        self._carry_out(raft.start(self.now))

    def crash(self, kept: int | None = None) -> None:
        """End the process. With `kept`, a power loss leaves so many unsynced entries."""
        self.raft = None
        self.life += 1
        self.sync_end = self.effects_left = None
        self._walk.network += [
            message._replace(has_failed=True)
            for message in self.unanswered.values()
            if not message.is_orphan
        ]
        self.unanswered.clear()
        if kept is not None:
            self.log.lose_tail(kept)

    def wipe(self) -> None:
        """Empty the disk of a node that is down. It then starts like a new one."""
        self._walk.laws.lost[self.local.key] = self.log
        self.local = self._walk.voter(self.id)
        self.log = self._walk.new_log(self.local)
        self.saved = ElectionState(0, None)
        self.committed = 0

    def resign(self) -> None:
        """Stop: a leader announces it, and nothing else is carried out."""
        if self.raft is not None:
            for effect in self.raft.step(Resign(), self.now):
                if isinstance(effect, SendRequest | SendResponse):
                    self._handlers[type(effect)](effect)
            self.crash()

    # Events

    def receive(self, message: Message) -> None:
        """Deliver a request."""
        self.unanswered[id(message)] = message
        self.deliver(RequestReceived(message.sender, message.request, message))

    def deliver(self, event: Event) -> None:
        if self.raft is not None:
            self.step_voters = self.log.voter_sets.latest.voters
            self._carry_out(self.raft.step(event, self.now))

    def _carry_out(self, effects: list[Any]) -> None:
        """Carry out effects. Some of them are events when they are done."""
        is_done = False
        for effect in effects:
            if self.effects_left is not None:
                if self.effects_left == 0:
                    self._walk.note(self.id, "crashes before", effect)
                    self.crash(self._walk.choices.below(4))
                    return
                self.effects_left -= 1
            self._handlers[type(effect)](effect)
            is_done |= type(effect) is Truncate or type(effect) is InstallSnapshot
        if is_done:
            self.deliver(Synced())
        self._walk.laws.check_standing(self)

    def append(self, number: int) -> bool:
        """Append an entry as the leader; return False if this node cannot."""
        raft = self.raft
        if raft is None or not isinstance(raft.state, LeaderState):
            return False
        if self.log.end_offset <= raft.state.epoch_start_offset:
            return False
        self._append(Entry(raft.epoch, number))
        self._sync(None)
        return True

    def finish_sync(self) -> None:
        """A sync is done: it covers what the log had when it began."""
        if self.sync_end is not None:
            log = self.log
            log.synced_end = max(log.synced_end, min(self.sync_end, log.end_offset))
            self.sync_end = None if log.synced_end == log.end_offset else log.end_offset
            self.deliver(Synced())

    def take_snapshot(self) -> bool:
        """Write a snapshot of the applied entries, and delete what older snapshots cover."""
        latest = self.log.latest_snapshot
        if self.raft is None or self.applied <= (0 if latest is None else latest.offset):
            return False
        snapshot = OffsetAndEpoch(self.applied, self.log.epoch_at(self.applied - 1))
        self.log.add_generated_snapshot(snapshot)
        self.log.delete_before_snapshot(snapshot)
        return True

    def save_committed(self) -> None:
        if self.raft is not None:
            self.committed = max(self.committed, min(self.raft.high_watermark, self.log.synced_end))

    # Effects

    def _send_request(self, effect: SendRequest) -> None:
        request, laws = effect.request, self._walk.laws
        if not isinstance(
            request, AddVoterRequest | RemoveVoterRequest | UpgradeKRaftVersionRequest
        ):
            laws.mentioned(self.id, request.epoch, self.saved)
        if isinstance(request, VoteRequest):
            laws.requested(self, request)
        self._walk.network.append(Message(self.id, self.life, effect.destination, request))

    def _send_response(self, effect: SendResponse) -> None:
        message, response, laws = effect.reply_to, effect.response, self._walk.laws
        assert isinstance(message, Message)
        del self.unanswered[id(message)]
        laws.mentioned(self.id, response.epoch, self.saved)
        if isinstance(response, FetchResponse):
            if response.read_from is not None:
                response = self._with_records(response, response.read_from)
        elif (
            isinstance(response, VoteResponse)
            and response.granted
            and isinstance(message.request, VoteRequest)
            and not message.request.pre_vote
        ):
            candidate = ReplicaKey(message.sender, message.request.directory_id)
            laws.granted(self, candidate, message.request)
        elif isinstance(response, VoterChangeResponse) and not response.error:
            self._walk.note(self.id, "answers", message.request)
            self._walk.changes += 1
        if not message.is_orphan:
            self._walk.network.append(message._replace(response=response))

    def _with_records(self, response: FetchResponse, offset: int) -> FetchResponse:
        first = offset - self.log.start_offset
        assert first >= 0, f"node {self.id} reads {offset}, below its log start offset"
        records: Any = tuple(self.log.entries[first : first + self._walk.fetch_entries])
        return FetchResponse(
            response.error,
            response.leader_id,
            response.epoch,
            response.high_watermark,
            response.diverging,
            response.snapshot,
            records,
        )

    def _save(self, effect: SaveElectionState) -> None:
        self.saved = effect.state

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        self._walk.laws.elected(self, effect.epoch)
        self._append(Entry(effect.epoch, self._walk.new_number(), effect.new_voters))

    def _append_voters(self, effect: AppendVoters) -> None:
        is_upgrade = effect.kraft_version is not None
        self._walk.laws.change_appended(self, effect.voters, is_upgrade=is_upgrade)
        verb = "raises kraft.version with" if is_upgrade else "appends"
        self._walk.note(self.id, verb, "the voters", list(effect.voters.ids))
        self._append(Entry(effect.epoch, self._walk.new_number(), effect.voters))

    def _ask_supported_versions(self, effect: AskSupportedVersions) -> None:
        self._walk.network.append(VersionsQuestion(self.id, self.life, effect.voter))

    def _append_records(self, effect: AppendRecords) -> None:
        records: Any = effect.records
        for entry in records:
            self._append(entry)

    def _append(self, entry: Entry) -> None:
        log = self.log
        before = log.entries[-1] if log.entries else None
        laws = self._walk.laws
        laws.appended(self.id, log.end_offset, entry, before)
        log.append(entry)
        if entry.voters is not None:
            laws.check_uncommitted_changes(self)

    def _sync(self, _effect: Sync | None) -> None:
        if self.sync_end is None:
            self.sync_end = self.log.end_offset

    def _truncate(self, effect: Truncate) -> None:
        self._walk.truncations += 1
        self.log.truncate(effect.offset)
        if self.sync_end is not None:
            self.sync_end = min(self.sync_end, self.log.end_offset)

    def _fetch_snapshot(self, effect: FetchSnapshot) -> None:
        parts = 1 + self._walk.choices.below(3)
        self._walk.network.append(Download(self.id, self.life, effect, parts))

    def _install(self, effect: InstallSnapshot) -> None:
        self._walk.installed += 1
        self._load(effect.snapshot)
        self.log.truncate_to_snapshot(effect.snapshot)
        if self.sync_end is not None:
            self.sync_end = self.log.end_offset

    def _load(self, snapshot: OffsetAndEpoch) -> None:
        self._walk.laws.loaded(self.id, snapshot)
        self.applied = max(self.applied, snapshot.offset)

    def _commit(self, effect: Commit) -> None:
        if self.is_leader and self.raft is not None:
            self._walk.laws.led_commit(self, self.raft.epoch, effect.high_watermark)
        self._apply(effect.high_watermark)

    def _apply(self, high_watermark: int) -> None:
        raft, log, laws = self.raft, self.log, self._walk.laws
        assert raft is not None
        epoch = raft.epoch
        while self.applied < high_watermark:
            laws.applied(self, self.applied, log.entry(self.applied), epoch)
            self.applied += 1
