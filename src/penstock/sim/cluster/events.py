"""The events of a simulated cluster run: what clients saw, and what observers saw inside the nodes.

Times are seconds of virtual time. End offsets are exclusive. `max_high_watermark` is the highest
high watermark that any leader of the partition has had so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from penstock.ids import TopicPartition

# The group of classic members, and the group of members with the consumer protocol (KIP-848).
CLASSIC_GROUP, CONSUMER_GROUP = "readers", "consumers"


def incarnation(partition: TopicPartition, topic_id: UUID) -> TopicPartition:
    """Return the name under which the history knows a partition of a topic that is deleted and
    created again: each incarnation is a topic of its own."""
    return TopicPartition(f"{partition.topic}/{topic_id.hex[:12]}", partition.partition)


@dataclass(frozen=True, slots=True)
class Event:
    at: float


# Producers, consumers and administrators


@dataclass(frozen=True, slots=True)
class StrangerAnswered(Event):
    """A client without the right to write got an answer to a write."""

    partition: TopicPartition
    value: bytes
    error_code: int


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
class EpochEndFetched(Event):
    """A consumer that had read up to `position` asked for the end of the epoch of its last record
    (OffsetForLeaderEpoch). A smaller `end_offset` says that its records were truncated."""

    consumer: str
    partition: TopicPartition
    position: int
    end_offset: int


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


@dataclass(frozen=True, slots=True)
class TopicDeleted(Event):
    topic: str


@dataclass(frozen=True, slots=True)
class KeyedRecordSent(Event):
    """A record of a compacted topic. `number` increases with every send; a tombstone has no
    value."""

    partition: TopicPartition
    key: bytes
    number: int
    tombstone: bool


@dataclass(frozen=True, slots=True)
class KeyedRecordAcknowledged(Event):
    partition: TopicPartition
    key: bytes
    number: int


# Consumer groups


@dataclass(frozen=True, slots=True)
class MemberAssigned(Event):
    """A member joined a generation and consumes these partitions."""

    member: str
    generation: int
    partitions: frozenset[TopicPartition]
    group: str = CLASSIC_GROUP


@dataclass(frozen=True, slots=True)
class OffsetCommitStarted(Event):
    number: int
    member: str
    generation: int
    offsets: Mapping[TopicPartition, int]
    group: str = CLASSIC_GROUP


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
    group: str = CLASSIC_GROUP


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered(Event):
    """A broker answered a ConsumerGroupHeartbeat that was sent at time `sent`. `error` is None if
    it was accepted. `has_joined` is False until the sender has a member epoch."""

    member: str
    sent: float
    broker: int | None
    error: str | None
    has_joined: bool = True


@dataclass(frozen=True, slots=True)
class ReplacedMemberCommitted(Event):
    """A static member committed offsets after another member had taken over its instance id.
    `error` is None if the coordinator accepted the commit."""

    instance: str
    error: str | None


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


@dataclass(frozen=True, slots=True)
class ReassignmentEnded(Event):
    """The replicas of a partition after its last reassignment, and those that were requested: one
    of several if it was cancelled while it may have been complete."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    allowed: tuple[tuple[int, ...], ...]


# The metadata quorum, seen from inside the nodes


@dataclass(frozen=True, slots=True)
class VoteGranted(Event):
    """`directory` is the id of the voter's metadata directory: with another one it is another voter
    (KIP-853). `is_addressed` is false if the vote was requested of a voter with another one."""

    node: int
    epoch: int
    candidate: int
    directory: str = ""
    is_addressed: bool = True


@dataclass(frozen=True, slots=True)
class BecameQuorumLeader(Event):
    """`granted` of the newest `voters` in the leader's log voted for it."""

    node: int
    epoch: int
    granted: int = 1
    voters: int = 1


@dataclass(frozen=True, slots=True)
class VotersAppended(Event):
    """The quorum leader wrote other voters to its log, after it had committed records of its epoch
    or not, while the voters before them were committed or not."""

    node: int
    epoch: int
    voters: frozenset[tuple[int, str]]
    before: frozenset[tuple[int, str]]
    has_committed_in_epoch: bool
    is_before_committed: bool


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
    """A node learnt that a batch of the metadata log is committed, or applied it to its image.
    `checksum` is the CRC of its bytes."""

    node: int
    offset: int
    checksum: int


@dataclass(frozen=True, slots=True)
class SnapshotPieceFetched(Event):
    """A node wrote a piece of the quorum leader's snapshot to its disk."""

    node: int
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalling(Event):
    """A node begins to replace its metadata log by a snapshot that it fetched."""

    node: int
    offset: int


# Faults


@dataclass(frozen=True, slots=True)
class FaultEvent(Event):
    """A fault started or ended, or a process ended."""

    description: str


@dataclass(frozen=True, slots=True)
class FileDamaged(Event):
    """A bit of a file was flipped, or its end was cut off. `partition` is None if the file belongs
    to no partition of a topic."""

    node: int
    path: str
    partition: TopicPartition | None


@dataclass(frozen=True, slots=True)
class DiskFails(Event):
    """Operations on a log directory of a node fail."""

    node: int


@dataclass(frozen=True, slots=True)
class FileRepaired(Event):
    """The damaged file of a node was removed, or its disk was replaced."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeEnded(Event):
    """The process of a node ended by itself."""

    node: int
    error: str


@dataclass(frozen=True, slots=True)
class PowerLostTogether(Event):
    """Several nodes lost power at the same time. Every replica had synced its log up to `synced`
    (exclusive)."""

    nodes: tuple[int, ...]
    synced: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class MajorityStarted(Event):
    """A majority of the voters was up and connected, and one of it had to fetch a snapshot.
    `committed_after_s` is the time until both had the same committed metadata, or None if they had
    not within `within_s`."""

    within_s: float
    committed_after_s: float | None


@dataclass(frozen=True, slots=True)
class ClocksJumped(Event):
    """All wall clocks jumped in a healthy cluster, and `elections` elections followed."""

    elections: int
