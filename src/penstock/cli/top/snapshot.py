"""What penstock top saw of a cluster at one time. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from penstock.ids import TopicPartition

LIVE, FENCED, CORDONED, SILENT = "live", "fenced", "cordoned", "silent"
LEADER, VOTER, OBSERVER = "leader", "voter", "observer"


class Partition(NamedTuple):
    """`leader` is -1 without a leader."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class LogDirs(NamedTuple):
    """The log directories of a broker that answered, and the sizes of its replicas."""

    directories: int
    offline: int
    cordoned: bool
    sizes: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Broker:
    """`log_dirs` is None if the broker was not asked or did not answer; `silent` says which."""

    id: int
    address: str
    rack: str | None
    fenced: bool
    log_dirs: LogDirs | None = None
    silent: bool = False

    @property
    def state(self) -> str:
        if self.fenced:
            return FENCED
        if self.silent:
            return SILENT
        return CORDONED if self.log_dirs is not None and self.log_dirs.cordoned else LIVE


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID
    partitions: tuple[Partition, ...]


class QuorumReplica(NamedTuple):
    role: str
    lag: int


@dataclass(frozen=True, slots=True)
class Quorum:
    leader_id: int
    epoch: int
    replicas: Mapping[int, QuorumReplica]

    @property
    def voter_lag(self) -> int:
        """Return the lag of the slowest voter, in records."""
        return max(
            (replica.lag for replica in self.replicas.values() if replica.role != OBSERVER),
            default=0,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """`members` and `lag` are None if the coordinator did not answer."""

    id: str
    kind: str
    state: str
    members: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`at_s` is monotonic. `groups` has the groups that were asked for; `group_count` counts all,
    and is None if none was asked for. `ends` has the log end offsets that leaders gave. What a
    broker did not answer is missing, and `errors` says why."""

    at_s: float
    cluster_id: str
    brokers: tuple[Broker, ...] = ()
    topics: tuple[Topic, ...] = ()
    groups: tuple[Group, ...] = ()
    group_count: int | None = None
    quorum: Quorum | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)
