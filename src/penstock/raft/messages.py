"""What goes into the machine and what comes out of it: messages between nodes, events, effects.
Values only.

A `reply` is the shell's own token for a request that waits for its answer; the machine hands it
back and never looks into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ErrorCode
from penstock.ids import Buffer
from penstock.raft.log_view import OffsetAndEpoch

NO_LEADER = -1

# Messages between nodes


@dataclass(frozen=True, slots=True)
class AskVote:
    """With pre_vote: whether the vote would be given in the epoch after this one; otherwise for the
    vote of this epoch."""

    epoch: int
    end: OffsetAndEpoch
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class TellBegin:
    """The sender leads this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TellEnd:
    """The sender led this epoch and leads no more. Who should stand for election, the first at
    once."""

    epoch: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskFetch:
    """What a follower has: everything before the offset, synced, the last record of it in this
    epoch; and the watermark it knows."""

    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    max_wait_s: float


Request = AskVote | TellBegin | TellEnd | AskFetch


@dataclass(frozen=True, slots=True)
class Answer:
    """Of any request: what went wrong, and whom the answering node takes for the leader of which
    epoch."""

    error: ErrorCode
    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VoteAnswer(Answer):
    granted: bool = False


@dataclass(frozen=True, slots=True)
class FetchAnswer(Answer):
    """Records, or where the follower must truncate, or which snapshot it needs. A leader's machine
    leaves the records to the shell, which reads them from `read_from` on."""

    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records: Buffer = b""
    read_from: int | None = None


# Events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: `Raft.deadline` says when one is wanted."""


@dataclass(frozen=True, slots=True)
class Asked:
    sender: int
    request: Request
    reply: object


@dataclass(frozen=True, slots=True)
class Answered:
    sender: int
    request: Request
    answer: Answer


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer will come: the connection could not be made, or closed, or took too long."""

    sender: int
    request: Request


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's shell wrote records at the log's end."""


@dataclass(frozen=True, slots=True)
class Synced:
    """Some effect on the log is done: its end is synced, or it was cut, or restarted after a
    snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """A piece of a snapshot came, all of it (`done`), or no more will come (`failed`)."""

    leader_id: int
    epoch: int
    snapshot: OffsetAndEpoch
    done: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Resign:
    """The node stops: whoever leads says so, and stands for election no more."""


Event = Tick | Asked | Answered | Unreachable | Appended | Synced | SnapshotProgress | Resign

# Effects


class ElectionState(NamedTuple):
    """What must survive. The leader is kept for people: no rule depends on it."""

    epoch: int
    voted_id: int | None
    leader_id: int | None = None


@dataclass(frozen=True, slots=True)
class SaveState:
    """To the disk, before anything that follows."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Send:
    """Answered in any case by `Answered` or `Unreachable`."""

    to: int
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    reply: object
    answer: Answer


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """The first record of an epoch, by which everything before it can be committed."""

    epoch: int
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendRecords:
    records: Buffer


@dataclass(frozen=True, slots=True)
class Sync:
    """In the background; `Synced` when it is done."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """To the disk, before anything that follows; then `Synced`."""

    offset: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """In the background, with `SnapshotProgress` at every piece."""

    leader_id: int
    epoch: int
    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The log goes on after the snapshot. To the disk, before anything that follows; then
    `Synced`."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Commit:
    """The high watermark moved."""

    high_watermark: int


Effect = (
    SaveState
    | Send
    | Reply
    | AppendLeaderChange
    | AppendRecords
    | Sync
    | Truncate
    | FetchSnapshot
    | InstallSnapshot
    | Commit
)
