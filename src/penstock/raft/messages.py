"""Input and output of the state machine: messages between nodes, events, effects. Values only.

The messages have the names of the Kafka RPCs that carry them. `node.quorum.rpc` translates between
these and the classes of `protocol.messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.ids import NO_UUID, Buffer
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import ReplicaKey, Voter, VoterSet

NO_LEADER = -1

# Requests and responses


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Requests the vote of `epoch`. A pre-vote (KIP-996) asks whether the receiver would grant the
    vote of the next epoch; it changes no state. `directory_id` is the candidate's, and
    `voter_directory_id` that of the voter whose vote is requested."""

    epoch: int
    end: OffsetAndEpoch
    pre_vote: bool
    directory_id: UUID = NO_UUID
    voter_directory_id: UUID = NO_UUID


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """Announces to a voter that the sender leads `epoch`."""

    epoch: int
    voter_directory_id: UUID = NO_UUID


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """Announces that the sender no longer leads `epoch`.

    The first of `successors` starts an election immediately, the others take turns after it.
    """

    epoch: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Acknowledges that the sender has synced every record below `offset`, the last of which has
    `last_fetched_epoch`, and requests the records from there on."""

    epoch: int
    offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_s: float
    directory_id: UUID = NO_UUID


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Asks the leader to make an observer a voter (KIP-853)."""

    voter: Voter
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Asks the leader to make a voter an observer (KIP-853)."""

    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """Announces the endpoints and the supported levels of kraft.version of the sender, a voter."""

    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class UpgradeKRaftVersionRequest:
    """Asks the leader to raise kraft.version, which writes the voters to the log."""

    level: int
    validate_only: bool = False


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | UpgradeKRaftVersionRequest
)


@dataclass(frozen=True, slots=True)
class Response:
    """The error, and the epoch and leader known to the responding node. BeginQuorumEpoch and
    EndQuorumEpoch have no other fields."""

    error: ErrorCode
    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VoteResponse(Response):
    granted: bool = False


@dataclass(frozen=True, slots=True)
class FetchResponse(Response):
    """Carries records, or the diverging epoch to truncate to, or the snapshot to load.

    The leader's state machine does not read records: it sets `read_from`, and the shell reads the
    records from that offset.
    """

    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records: Buffer = b""
    read_from: int | None = None


@dataclass(frozen=True, slots=True)
class VoterChangeResponse(Response):
    """The response to a request that changes the voters. `message` explains the error."""

    message: str | None = None


# Events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `Raft.deadline` is when the next one is due."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """`reply_to` identifies the request to the shell; the machine returns it in `SendResponse`."""

    sender: int
    request: Request
    reply_to: object


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    sender: int
    request: Request
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No response will arrive: the connection failed or was closed, or the request timed out."""

    destination: int
    request: Request


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's shell appended records to the log."""


@dataclass(frozen=True, slots=True)
class Synced:
    """An effect on the log is done: a sync, a truncation, or the installation of a snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """A part of a snapshot arrived, or all of it (`done`), or the download failed (`failed`)."""

    leader_id: int
    epoch: int
    snapshot: OffsetAndEpoch
    done: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotPieceServed:
    """This node, as the leader of `epoch`, sent a replica a piece of a snapshot."""

    replica_id: int
    epoch: int
    directory_id: UUID = NO_UUID


@dataclass(frozen=True, slots=True)
class SupportedVersionsReceived:
    """The answer to `AskSupportedVersions`: the levels of kraft.version that a controller supports.
    None if it did not answer."""

    key: ReplicaKey
    levels: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Resign:
    """The node shuts down: a leader hands over, and the node starts no further election."""


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | Appended
    | Synced
    | SnapshotProgress
    | SnapshotPieceServed
    | SupportedVersionsReceived
    | Resign
)

# Effects


class ElectionState(NamedTuple):
    """What the quorum-state file holds. `leader_id` is informational: no rule reads it back."""

    epoch: int
    voted_id: int | None
    leader_id: int | None = None
    voted_directory_id: UUID = NO_UUID


@dataclass(frozen=True, slots=True)
class SaveElectionState:
    """Write to disk before carrying out any later effect."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Results in exactly one `ResponseReceived` or `RequestFailed`."""

    destination: int
    request: Request


@dataclass(frozen=True, slots=True)
class SendResponse:
    reply_to: object
    response: Response


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append the LeaderChangeMessage, the first record of an epoch. Committing it commits every
    record before it. With `new_voters` a KRaftVersionRecord and a VotersRecord follow it in the
    same batch: the log has no voters yet, or the leader has other endpoints than the log says."""

    epoch: int
    granting_voters: tuple[int, ...]
    new_voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append a VotersRecord as the leader of `epoch`; with `kraft_version` a KRaftVersionRecord
    before it. If that fails, no record is appended, and the change of voters times out."""

    epoch: int
    voters: VoterSet
    kraft_version: int | None = None


@dataclass(frozen=True, slots=True)
class AskSupportedVersions:
    """Ask a controller in the background which levels of kraft.version it supports (ApiVersions),
    then deliver `SupportedVersionsReceived`."""

    voter: Voter


@dataclass(frozen=True, slots=True)
class AppendRecords:
    records: Buffer


@dataclass(frozen=True, slots=True)
class Sync:
    """Sync the log in the background, then deliver `Synced`."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate on disk before carrying out any later effect, then deliver `Synced`."""

    offset: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Download a snapshot in the background; deliver `SnapshotProgress` after each part."""

    leader_id: int
    epoch: int
    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Load the snapshot and restart the log after it, on disk and before carrying out any later
    effect; then deliver `Synced`."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Commit:
    """Apply the log up to `high_watermark`, and not further: the machine may already be ahead, with
    effects on the log that are not carried out yet."""

    high_watermark: int


Effect = (
    SaveElectionState
    | SendRequest
    | SendResponse
    | AppendLeaderChange
    | AppendVoters
    | AskSupportedVersions
    | AppendRecords
    | Sync
    | Truncate
    | FetchSnapshot
    | InstallSnapshot
    | Commit
)
