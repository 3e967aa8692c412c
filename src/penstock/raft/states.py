"""The states of a node in the quorum, with the data that only each state needs.

Names follow Kafka's `EpochState` classes. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from penstock.raft.messages import FetchRequest
from penstock.raft.voters import ReplicaKey, Voter, VoterSet


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts in seconds.

    The first four and the last are Kafka's settings. `disconnect_grace` is how long a voter whose
    connection to the leader failed waits before it starts an election; voters take turns of this
    length.
    """

    election_timeout: float = 1.0
    fetch_timeout: float = 2.0
    election_backoff_max: float = 1.0
    retry_backoff: float = 0.02
    disconnect_grace: float = 0.05
    fetch_max_wait: float = 0.5
    # How long a change of the voters may take.
    request_timeout: float = 2.0


@dataclass(slots=True)
class EpochElection:
    """The votes of one election or pre-vote. Iteration order must not depend on the sets: they are
    only counted and tested for membership."""

    voters: Sequence[int]
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    in_flight: set[int] = field(default_factory=set)
    retry_at: float = 0.0

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_granted(self) -> bool:
        return len(self.granted) >= self.majority

    @property
    def is_rejected(self) -> bool:
        return len(self.rejected) > len(self.voters) - self.majority

    @property
    def is_lost(self) -> bool:
        """True if the voters left cannot form a majority, counting unreachable ones as rejected."""
        return len(self.rejected) + len(self.unreachable) > len(self.voters) - self.majority


@dataclass(slots=True)
class UnattachedState:
    """No leader is known. A voter waits for its election timeout; an observer sends fetches to find
    the leader."""

    election_at: float
    fetch: FetchRequest | None = None
    fetch_at: float = 0.0


class WaitingFor(Enum):
    """What a follower waits for before its next fetch."""

    NOTHING = auto()
    RESPONSE = auto()
    DISK = auto()
    SNAPSHOT = auto()


@dataclass(slots=True)
class FollowerState:
    """Follows a known leader. Fetching and syncing alternate: one fetch is in flight, or one write
    is on its way to disk."""

    leader_id: int
    timeout_at: float
    waiting_for: WaitingFor = WaitingFor.NOTHING
    fetch: FetchRequest | None = None
    retry_at: float = 0.0
    # When the leader became unreachable; None while it is reachable.
    disconnected_at: float | None = None
    has_fetched: bool = False
    leader_high_watermark: int = -1
    # When this replica may next ask the leader to update, add or remove it as a voter.
    update_voter_at: float = 0.0
    has_updated_voter: bool = False


@dataclass(slots=True)
class ProspectiveState:
    """Collects pre-votes. `leader_id` is the leader whose fetch timeout expired, if any."""

    leader_id: int | None
    since: float
    timeout_at: float
    election: EpochElection


@dataclass(slots=True)
class CandidateState:
    """Collects the votes of its epoch."""

    since: float
    timeout_at: float
    election: EpochElection


@dataclass(slots=True)
class ReplicaState:
    """What a replica's fetches of this epoch acknowledged."""

    end_offset: int = -1
    last_fetch_at: float = -math.inf
    last_caught_up_at: float = -math.inf
    # The leader's log end offset at the last fetch: a replica that has reached it was caught up
    # then (KIP-836).
    leader_end_at_fetch: int = -1


@dataclass(frozen=True, slots=True)
class DelayedFetch:
    """A fetch that waits for new records or a higher high watermark."""

    sender: int
    request: FetchRequest
    reply_to: object
    deadline: float


@dataclass(slots=True)
class VoterChange:
    """A change of the voters that the leader works on; one at a time.

    `added` is the voter to add, until `voters` is appended. `offset` is that of the VotersRecord.
    """

    reply_to: object
    deadline: float
    added: Voter | None = None
    ack_when_committed: bool = True
    voters: VoterSet | None = None
    offset: int | None = None

    @property
    def is_answered(self) -> bool:
        """True if the response did not wait for the commit."""
        return not self.ack_when_committed and self.voters is not None


@dataclass(slots=True)
class LeaderState:
    """`voters` has the replica state of each voter in `voter_set` but this node. The set is the
    newest one of the log as of the last step."""

    epoch_start_offset: int
    since: float
    voter_set: VoterSet
    voters: dict[int, ReplicaState]
    # Ordered by the last fetch.
    observers: dict[ReplicaKey, ReplicaState] = field(default_factory=dict)
    delayed_fetches: list[DelayedFetch] = field(default_factory=list)
    begin_quorum_epoch_at: float = 0.0
    change: VoterChange | None = None
    # With kraft.version 0: the voters as they announced themselves in this epoch.
    announced: dict[int, Voter] = field(default_factory=dict)


EpochState = UnattachedState | FollowerState | ProspectiveState | CandidateState | LeaderState

# The legal transitions; `machine` says what triggers each.
TRANSITIONS: Mapping[type[EpochState], tuple[type[EpochState], ...]] = {
    UnattachedState: (UnattachedState, FollowerState, ProspectiveState),
    FollowerState: (UnattachedState, FollowerState, ProspectiveState),
    ProspectiveState: (UnattachedState, FollowerState, CandidateState),
    CandidateState: (UnattachedState, FollowerState, LeaderState),
    LeaderState: (UnattachedState, FollowerState),
}
