"""What happened in a simulated run of a cluster: what its clients saw, and what was seen inside its
nodes. Values that checkers judge.

Partitions are `TopicPartition`s, times are seconds of virtual time, end offsets are exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    at: float


# As clients see it


@dataclass(frozen=True, slots=True)
class Sent(Event):
    producer: str
    partition: TopicPartition
    value: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """`offset` is -1 where a retry found the record written before. `highest` is the highest
    watermark that any node had by then."""

    producer: str
    partition: TopicPartition
    value: bytes
    offset: int
    highest: int


@dataclass(frozen=True, slots=True)
class Read(Event):
    consumer: str
    partition: TopicPartition
    offset: int
    value: bytes
    highest: int


@dataclass(frozen=True, slots=True)
class Denied(Event):
    """A consumer that had read everything before `offset` was told that there is no such offset."""

    consumer: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Stolen(Event):
    """Who posed as a replica got records up to an offset. `highest`: as in Acknowledged."""

    replica: int
    partition: TopicPartition
    end_offset: int
    highest: int


@dataclass(frozen=True, slots=True)
class TopicCreated(Event):
    topic: str


# As the members of a group see it


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """A member has joined a generation, and reads these."""

    member: str
    generation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class CommitBegan(Event):
    number: int
    member: str
    generation: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CommitEnded(Event):
    """Without a refusal it was acknowledged. A commit that never ends, or ends by a lost
    connection, may have happened or not."""

    number: int
    refusal: str | None


@dataclass(frozen=True, slots=True)
class OffsetsFound(Event):
    """Somebody asked a broker, from `began` on, what the group has committed."""

    began: float
    broker: int | None
    offsets: Mapping[TopicPartition, int]


# As seen inside: partitions


@dataclass(frozen=True, slots=True)
class Led(Event):
    """A node began to lead, with a log of this end. `highest`: of all leaders of earlier epochs,
    the highest watermark until then."""

    node: int
    partition: TopicPartition
    epoch: int
    end_offset: int
    highest: int


@dataclass(frozen=True, slots=True)
class Advanced(Event):
    """A leader moved its watermark. `ends` are the true log ends of the in-sync replicas that have
    lost nothing since they fetched."""

    node: int
    partition: TopicPartition
    epoch: int
    watermark: int
    in_sync: int
    min_insync: int
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Appended(Event):
    """A leader took records of a client. `known_*` is what the node itself had been told last of
    who leads."""

    node: int
    partition: TopicPartition
    epoch: int
    known_leader: int
    known_epoch: int


@dataclass(frozen=True, slots=True)
class Counted(Event):
    """A leader counted a follower's fetch, made in one life of its broker; `known_epoch` is the
    life that the leader's node knew of."""

    node: int
    partition: TopicPartition
    replica: int
    broker_epoch: int
    known_epoch: int


@dataclass(frozen=True, slots=True)
class Cut(Event):
    """A follower dropped its tail. `shared` is how far its log was the same as its leader's; None
    where that could not be seen."""

    node: int
    partition: TopicPartition
    before: int
    after: int
    shared: int | None


@dataclass(frozen=True, slots=True)
class Elected(Event):
    """The controller changed a partition's leader. `eligible` were those in ISR or ELR before, and
    did not leave both with this change."""

    partition: TopicPartition
    leader: int
    preferred: int
    epoch: int
    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


# As seen inside: the quorum


@dataclass(frozen=True, slots=True)
class Voted(Event):
    node: int
    epoch: int
    candidate: int


@dataclass(frozen=True, slots=True)
class Ruled(Event):
    """A node became the quorum's leader."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """The quorum's leader committed up to an offset, whose last entry is of an epoch; `holders` of
    the voters have that entry on disk."""

    node: int
    epoch: int
    offset: int
    entry_epoch: int
    holders: int
    voters: int


@dataclass(frozen=True, slots=True)
class Applied(Event):
    """A node holds a batch of the metadata log to be committed; the fingerprint stands for its
    bytes."""

    node: int
    offset: int
    fingerprint: int


# Around it


@dataclass(frozen=True, slots=True)
class Struck(Event):
    """A fault began or ended."""

    what: str


@dataclass(frozen=True, slots=True)
class ClocksAlone(Event):
    """The clocks jumped in a healthy cluster, and so many elections followed."""

    elections: int


class ProducerKind(NamedTuple):
    idempotent: bool
    acks_all: bool


class ReplicaLog(NamedTuple):
    high_watermark: int
    # (base offset, next offset, bytes)
    batches: tuple[tuple[int, int, bytes], ...]


E = TypeVar("E", bound=Event)


@dataclass(slots=True)
class History:
    """`promised` are the topics of which nothing acknowledged with acks=all may be lost by the
    faults of this run."""

    events: list[Event] = field(default_factory=list)
    promised: dict[str, bool] = field(default_factory=dict)
    # Topics that anybody may lead where nobody else is left. A set is only asked, never walked.
    unclean: set[str] = field(default_factory=set)
    producers: dict[str, ProducerKind] = field(default_factory=dict)
    # What a fresh consumer read from offset 0 when all was over, and the logs of all replicas then.
    final: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    logs: dict[TopicPartition, dict[int, ReplicaLog]] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    # Why the cluster was not healthy when it had to be; None where it was.
    unhealed: str | None = None
    ended: float = 0.0
    # The last lines of the simulation's own trace.
    trace: list[str] = field(default_factory=list)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def is_promised(self, partition: TopicPartition) -> bool:
        return self.promised.get(partition.topic, False)
