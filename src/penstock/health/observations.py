"""What was seen of a cluster at one time. Every check of this package reads these values only.

A source fills what it knows, and leaves the rest None or empty: `penstock doctor` fills most fields
over Kafka's protocol, `nodes` and `events` from the directory of `penstock up`, and
`Broker.clock_ahead_ms` and what `Broker` has of disks from the metrics of nodes. A leader knows
`Replica.last_fetch_ms`, which no API of Kafka reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from enum import StrEnum

from penstock.ids import TopicPartition


class Reach(StrEnum):
    """What a connection from here to an address led to."""

    KAFKA = "kafka"
    UNKNOWN_HOST = "unknown-host"
    NAME_SERVER = "name-server"
    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    SILENT = "silent"
    CLOSED = "closed"
    HTTP = "http"
    TLS = "tls"
    PLAINTEXT = "plaintext"
    CERTIFICATE_EXPIRED = "certificate-expired"
    CERTIFICATE_NAME = "certificate-name"
    CERTIFICATE = "certificate"
    HANDSHAKE = "tls-handshake"
    CREDENTIALS = "credentials"
    OTHER_PROTOCOL = "other-protocol"
    AUTHENTICATION = "authentication"
    CONTROLLER = "controller"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class Probe:
    """A connection to host:port. `versions` are the ranges of the API versions by API name. A
    broker's `metadata_offset` is that of the metadata which it has applied."""

    host: str
    port: int
    reach: Reach
    detail: str = ""
    addresses: tuple[str, ...] = ()
    cluster_id: str | None = None
    versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    metadata_offset: int | None = None
    round_trip_ms: int | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NodeState(StrEnum):
    """The state of a node's process on this machine."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of `penstock up` on this machine. `restart` and `resume` are commands that bring it
    back when it is stopped or paused."""

    id: int
    state: NodeState | None = None
    roles: tuple[str, ...] = ("broker", "controller")
    last_log_line: str = ""
    last_log_ms: int | None = None
    started_ms: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None
    restart: str = ""
    resume: str = ""


@dataclass(frozen=True, slots=True)
class LogDir:
    """`error` is empty for a directory that is online; bytes are None if unknown."""

    path: str
    error: str = ""
    cordoned: bool = False
    total_bytes: int | None = None
    usable_bytes: int | None = None


# A sync of a log to a disk that works takes milliseconds.
SLOW_FLUSH_S = 1.0


@dataclass(frozen=True, slots=True)
class Flushes:
    """Syncs of logs to disk, and how many of them took SLOW_FLUSH_S or longer."""

    count: int
    slow: int


@dataclass(frozen=True, slots=True)
class Broker:
    """Times are on the clock of this machine. `log_dirs` is None if the broker did not answer.
    `clock_ahead_ms` is how much the broker's clock is ahead of this machine's. `flushes` are those
    since its start, `recent_flushes` those while doctor looked. The disks of `stalled_dirs` do not
    answer."""

    id: int
    host: str = ""
    port: int = 0
    rack: str | None = None
    fenced: bool = False
    probe: Probe | None = None
    last_heartbeat_ms: int | None = None
    last_metadata_fetch_ms: int | None = None
    clock_ahead_ms: int | None = None
    log_dirs: tuple[LogDir, ...] | None = None
    flushes: Flushes | None = None
    recent_flushes: Flushes | None = None
    stalled_dirs: tuple[str, ...] = ()
    # It asked the controller to let it shut down.
    shutting_down: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """The replica of a partition on a broker. `leader_fetch_ms` is when the broker last fetched any
    partition from this partition's leader, `lag` the offsets that it does not have."""

    size: int | None = None
    last_fetch_ms: int | None = None
    leader_fetch_ms: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A leader of -1 means that there is none. `adding` are replicas of a reassignment that is not
    complete; they need not be in sync yet."""

    name: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    progress: Mapping[int, Replica] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topic:
    """`rate` is the number of records per second while the cluster was looked at."""

    name: str
    internal: bool = False
    partitions: int = 1
    replication_factor: int = 1
    min_insync: int | None = None
    unclean_election: bool | None = None
    has_own_configs: bool | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class BrokerDefaults:
    """The settings that a topic without own settings gets."""

    auto_create: bool
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or an observer. Times are on the clock of this machine."""

    id: int
    log_end_offset: int
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Quorum:
    """The controller quorum as its leader describes it, or the error if no leader was found."""

    leader: int = -1
    epoch: int = -1
    voters: tuple[QuorumReplica, ...] = ()
    observers: tuple[QuorumReplica, ...] = ()
    error: str = ""
    # How much the leader's clock is ahead of this machine's.
    clock_ahead_ms: int | None = None
    # When it was looked at, on the clock of this machine; None is now.
    seen_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of a partition. `rate` is in records per second."""

    start: int
    end: int
    last_stable: int
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Member:
    """`partitions` is None if it is not known how many the member has: its assignment cannot be
    read, because the group has a protocol of its own."""

    id: str
    client_id: str
    host: str
    partitions: int | None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset, the one before (`over_ms` earlier), and the age of the first record that
    is not read yet. `offsets` is None if the partition does not exist any more."""

    committed: int
    committed_before: int | None = None
    offsets: Offsets | None = None
    end_before: int | None = None
    unread_age_ms: int | None = None

    @property
    def lag(self) -> int:
        return 0 if self.offsets is None else max(self.offsets.end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group. `states` are the states at successive looks, `over_ms` the time between the
    first and the last one. `named` is True if the user asks for this group."""

    id: str
    states: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    offsets: Mapping[TopicPartition, GroupOffset] = field(default_factory=dict)
    over_ms: int = 0
    named: bool = False
    error: str = ""
    exists: bool = True
    coordinator_partition: TopicPartition | None = None


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is open in partitions, or that the user names. `transactional_id` is None
    if no coordinator knows the producer: then nothing ends the transaction. Partitions map to the
    offset at which the transaction starts there."""

    transactional_id: str | None
    producer_id: int = -1
    state: str = ""
    start_ms: int | None = None
    timeout_ms: int | None = None
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    named: bool = False
    exists: bool = True
    error: str = ""
    # All its partitions, also those whose leaders do not answer.
    involved: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """A query's checkpoint. `rate` is in records per second over the last batches."""

    name: str
    committed_batch: int | None
    planned_batch: int | None
    committed_ms: int | None = None
    planned_ms: int | None = None
    rate: float | None = None
    batch_ms: float | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, Offsets] = field(default_factory=dict)


class EventKind(StrEnum):
    """The kinds of log lines that explain something."""

    FENCED = "fenced"
    ISR = "isr"
    LEFT_ISR = "left-isr"
    DIR_OFFLINE = "log-dir-offline"
    DAMAGED = "damaged"
    PARTITION_OFFLINE = "partition-offline"
    CLOCK_JUMP = "clock-jump"
    BLOCKED = "blocked"
    OPEN_FILES = "open-files"
    SLOW_FETCH = "slow-fetch"
    HEARTBEAT_FAILED = "heartbeat-failed"
    FETCH_FAILED = "fetch-failed"
    TRUNCATED = "truncated"
    FILE_DAMAGED = "file-damaged"
    UNCLEAN_SHUTDOWN = "unclean-shutdown"
    UNREGISTERED = "unregistered"
    HANDSHAKE_FAILED = "handshake-failed"
    LOGIN_FAILED = "login-failed"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a node logged. `subject` is the broker, partition or path that it is about, or
    empty for the node itself. `numbers` are the brokers that the line names, or the seconds of a
    jump of the clock."""

    at_ms: int
    node: int
    kind: EventKind
    subject: str
    words: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that could not be looked at, and why."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that was seen. `events` are in the order of time."""

    now_ms: int
    zone: tzinfo = UTC
    bootstrap: tuple[Probe, ...] = ()
    bootstrap_error: str = ""
    cluster_id: str | None = None
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Partition] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    missing_topics: tuple[str, ...] = ()
    defaults: BrokerDefaults | None = None
    quorum: Quorum | None = None
    offsets: Mapping[TopicPartition, Offsets] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    # Groups of the cluster, of which `groups` are some.
    group_count: int = 0
    transactions: tuple[Transaction, ...] = ()
    queries: tuple[SparkQuery, ...] = ()
    nodes: Mapping[int, Node] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    @property
    def quorum_seen_ms(self) -> int:
        """When the quorum said who had fetched from it: seconds before `now_ms`, if the rest of the
        cluster took long to look at."""
        if self.quorum is None or self.quorum.seen_ms is None:
            return self.now_ms
        return self.quorum.seen_ms
