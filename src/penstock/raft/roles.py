"""What a node is in the quorum, with what only that role needs to know. Times are seconds of one
monotonic clock.

Unattached -> Prospective -> Candidate -> Leader any of them -> Follower, on word of a leader;
Follower -> Prospective, when it is lost; any -> Unattached, on word of a higher epoch
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from penstock.raft.messages import AskFetch


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds: Kafka's settings, and how soon a voter that lost its leader stands for
    election."""

    election_timeout: float = 1.0
    fetch_timeout: float = 2.0
    backoff_max: float = 1.0
    retry: float = 0.02
    grace: float = 0.05
    fetch_wait: float = 0.5


@dataclass(slots=True)
class Poll:
    """Who of the voters said what. Sets are only counted and asked, never walked."""

    voters: Sequence[int]
    granted: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    retry_at: float = 0.0

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def won(self) -> bool:
        return len(self.granted) >= self.majority

    @property
    def refused_by_majority(self) -> bool:
        return len(self.refused) > len(self.voters) - self.majority

    @property
    def hopeless(self) -> bool:
        """Also counting those that cannot be reached."""
        return len(self.refused) + len(self.unreachable) > len(self.voters) - self.majority


@dataclass(slots=True)
class Unattached:
    """Knows of no leader. An observer asks around for one; a voter waits until it is time to stand
    for election itself."""

    election_at: float
    asked: AskFetch | None = None
    ask_at: float = 0.0


class Waiting(Enum):
    """What a follower waits for before its next fetch."""

    NOTHING = auto()
    ANSWER = auto()
    DISK = auto()
    SNAPSHOT = auto()


@dataclass(slots=True)
class Follower:
    """One thing at a time: a fetch, then the disk, then the next fetch."""

    leader_id: int
    timeout_at: float
    waiting: Waiting = Waiting.NOTHING
    asked: AskFetch | None = None
    retry_at: float = 0.0
    # Since when the leader cannot be reached; None while it can.
    lost_at: float | None = None
    heard: bool = False
    leader_high_watermark: int = -1


@dataclass(slots=True)
class Prospective:
    """Asks whether it would be elected. It may still know the leader that it lost."""

    leader_id: int | None
    since: float
    timeout_at: float
    poll: Poll


@dataclass(slots=True)
class Candidate:
    since: float
    timeout_at: float
    poll: Poll


@dataclass(slots=True)
class Progress:
    """How far a replica has come, by its fetches in this epoch."""

    end_offset: int = -1
    fetched_at: float = -math.inf
    caught_up_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class Held:
    """A fetch that waits for news."""

    sender: int
    request: AskFetch
    reply: object
    deadline: float


@dataclass(slots=True)
class Leader:
    epoch_start: int
    since: float
    voters: dict[int, Progress]
    observers: dict[int, Progress] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    begin_at: float = 0.0


Role = Unattached | Follower | Prospective | Candidate | Leader
