"""The history of a simulated cluster run: what clients saw and what observers saw inside the nodes.
Checkers judge it.

Times are seconds of virtual time. End offsets are exclusive. `max_high_watermark` is the highest
high watermark that any leader of the partition has had so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    at: float


# Producers, consumers and administrators


@dataclass(frozen=True, slots=True)
class RecordSent(Event):
    producer: str
    partition: TopicPartition
    value: bytes


@dataclass(frozen=True, slots=True)
class RecordAcknowledged(Event):
    """`offset` is -1 if the broker recognised a retry as a duplicate of an earlier append."""

    producer: str
    partition: TopicPartition
    value: bytes
    offset: int
    max_high_watermark: int


@dataclass(frozen=True, slots=True)
class RecordConsumed(Event):
    consumer: str
    partition: TopicPartition
    offset: int
    value: bytes
    max_high_watermark: int


@dataclass(frozen=True, slots=True)
class OffsetOutOfRange(Event):
    """A consumer that had read every record below `offset` got OFFSET_OUT_OF_RANGE for it."""

    consumer: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class ImpostorFetched(Event):
    """A client that posed as a replica received records up to `end_offset`."""

    replica: int
    partition: TopicPartition
    end_offset: int
    max_high_watermark: int


@dataclass(frozen=True, slots=True)
class TopicCreated(Event):
    topic: str


# Consumer groups


@dataclass(frozen=True, slots=True)
class MemberAssigned(Event):
    """A member joined a generation and consumes these partitions."""

    member: str
    generation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class OffsetCommitStarted(Event):
    number: int
    member: str
    generation: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetCommitFinished(Event):
    """`error` is None if the commit was acknowledged. The outcome of a commit that never finishes,
    or ends with a lost connection, is unknown."""

    number: int
    error: str | None


@dataclass(frozen=True, slots=True)
class OffsetsFetched(Event):
    """A client asked `broker` for the group's committed offsets, starting at time `started`."""

    started: float
    broker: int | None
    offsets: Mapping[TopicPartition, int]


# Partitions, seen from inside the nodes


@dataclass(frozen=True, slots=True)
class BecameLeader(Event):
    """A node began to lead with a log that ends at `end_offset`. `max_high_watermark` counts only
    leaders of earlier epochs."""

    node: int
    partition: TopicPartition
    epoch: int
    end_offset: int
    max_high_watermark: int


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced(Event):
    """A leader advanced its high watermark. `isr_ends` are the true log end offsets of the in-sync
    replicas that have lost no data since they fetched."""

    node: int
    partition: TopicPartition
    epoch: int
    high_watermark: int
    isr_size: int
    min_insync: int
    isr_ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class LeaderAppended(Event):
    """A leader appended a client's records. `known_leader` and `known_epoch` are what the node's
    own metadata image said at that time."""

    node: int
    partition: TopicPartition
    epoch: int
    known_leader: int
    known_epoch: int


@dataclass(frozen=True, slots=True)
class FollowerFetchAccepted(Event):
    """A leader accepted a follower's fetch as an acknowledgement. `known_epoch` is the follower's
    broker epoch in the leader's metadata image."""

    node: int
    partition: TopicPartition
    replica: int
    broker_epoch: int
    known_epoch: int


@dataclass(frozen=True, slots=True)
class LogTruncated(Event):
    """A follower truncated its log. `common_end` is the end of the prefix that it shared with its
    leader, or None if the leader's log was not available."""

    node: int
    partition: TopicPartition
    before: int
    after: int
    common_end: int | None


@dataclass(frozen=True, slots=True)
class LeaderElected(Event):
    """The controller changed a partition's leader. `eligible` were in the ISR or the ELR before the
    change, and the change did not remove them from both."""

    partition: TopicPartition
    leader: int
    preferred: int
    epoch: int
    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


# The metadata quorum, seen from inside the nodes


@dataclass(frozen=True, slots=True)
class VoteGranted(Event):
    node: int
    epoch: int
    candidate: int


@dataclass(frozen=True, slots=True)
class BecameQuorumLeader(Event):
    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class QuorumHighWatermarkAdvanced(Event):
    """The quorum leader committed up to `offset`. The last committed entry is of `entry_epoch`, and
    `replicas` of the voters have it on disk."""

    node: int
    epoch: int
    offset: int
    entry_epoch: int
    replicas: int
    voters: int


@dataclass(frozen=True, slots=True)
class MetadataBatchCommitted(Event):
    """A node learnt that a batch of the metadata log is committed. `checksum` is the CRC of its
    bytes."""

    node: int
    offset: int
    checksum: int


# Faults


@dataclass(frozen=True, slots=True)
class FaultEvent(Event):
    """A fault started or ended, or a process ended."""

    description: str


@dataclass(frozen=True, slots=True)
class ClocksJumped(Event):
    """All wall clocks jumped in a healthy cluster, and `elections` elections followed."""

    elections: int


# The history itself


class ProducerKind(NamedTuple):
    idempotent: bool
    acks_all: bool


class ReplicaLog(NamedTuple):
    high_watermark: int
    # (base offset, next offset, bytes)
    batches: tuple[tuple[int, int, bytes], ...]


class Violation(NamedTuple):
    """A broken rule, and when it was broken."""

    at: float
    text: str


E = TypeVar("E", bound=Event)


@dataclass(slots=True)
class History:
    events: list[Event] = field(default_factory=list)
    # Topics whose records acknowledged with acks=all must survive the faults of this run.
    durable_topics: dict[str, bool] = field(default_factory=dict)
    # Topics with unclean.leader.election.enable. Only membership is tested: the order of a set
    # would differ between runs.
    unclean_topics: set[str] = field(default_factory=set)
    producers: dict[str, ProducerKind] = field(default_factory=dict)
    # At the end of the run: what a fresh consumer read from offset 0, all replicas' logs, all
    # topics.
    final_records: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    final_logs: dict[TopicPartition, dict[int, ReplicaLog]] = field(default_factory=dict)
    final_topics: tuple[str, ...] = ()
    # Why the cluster did not heal in time, or None if it did.
    heal_failure: str | None = None
    ended_at: float = 0.0
    # The last lines of the simulation's trace.
    trace: list[str] = field(default_factory=list)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one type, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def is_durable(self, partition: TopicPartition) -> bool:
        return self.durable_topics.get(partition.topic, False)


Checker = Callable[[History], Iterator[Violation]]
