"""The history of a simulated cluster run: its events, and what was read at its end. Checkers judge
it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.ids import TopicPartition
from penstock.security.acls import Acl
from penstock.sim.cluster.events import Event


class ProducerKind(NamedTuple):
    idempotent: bool
    acks_all: bool


class ReplicaLog(NamedTuple):
    high_watermark: int
    # (base offset, next offset, bytes)
    batches: tuple[tuple[int, int, bytes], ...]
    start_offset: int = 0


class KeyedRecord(NamedTuple):
    """A record of the compacted topic as it was read."""

    offset: int
    key: bytes
    number: int
    tombstone: bool


class CopyRoute(NamedTuple):
    """What the copiers copy: each partition of a topic to the same one of another topic."""

    source: str
    target: str
    group: str


class Violation(NamedTuple):
    """A broken rule, and when it was broken."""

    at: float
    text: str


E = TypeVar("E", bound=Event)


class Events(list[Event]):
    """The events in order. Listeners are called with each event that is appended."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        super().__init__(events)
        self.listeners: list[Callable[[Event], None]] = []

    def append(self, event: Event) -> None:
        super().append(event)
        for listener in self.listeners:
            listener(event)


@dataclass(slots=True)
class History:
    events: Events = field(default_factory=Events)
    # Topics whose records acknowledged with acks=all must survive the faults of this run.
    durable_topics: dict[str, bool] = field(default_factory=dict)
    # Whether the state of groups must survive the faults of this run.
    durable_groups: bool = True
    # Topics with unclean.leader.election.enable. Only membership is tested: the order of a set
    # would differ between runs.
    unclean_topics: set[str] = field(default_factory=set)
    # Topics that are deleted and created again. Only membership is tested.
    recreated_topics: set[str] = field(default_factory=set)
    producers: dict[str, ProducerKind] = field(default_factory=dict)
    # At the end of the run: what a fresh consumer read from offset 0, all replicas' logs, all
    # topics.
    final_records: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    final_logs: dict[TopicPartition, dict[int, ReplicaLog]] = field(default_factory=dict)
    final_topics: tuple[str, ...] = ()
    # Whether partitions move between brokers.
    has_reassignments: bool = False
    # Topics whose oldest records are deleted, and the smallest retention.bytes that each has had.
    retention_bytes: dict[str, int] = field(default_factory=dict)
    # Per partition, the largest offset up to which a client asked to delete records.
    deletions: dict[TopicPartition, int] = field(default_factory=dict)
    # What a fresh consumer read of the compacted topic, and what each replica's log has, by reader.
    final_keyed: dict[str, list[KeyedRecord]] = field(default_factory=dict)
    # What fresh consumers read of the transactional topics, with read_committed and without, and
    # the last stable offset and high watermark of all replicas of all partitions.
    final_committed: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    final_uncommitted: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    final_stable: dict[TopicPartition, dict[int, tuple[int, int]]] = field(default_factory=dict)
    # Transactions that are still open or half ended, with their states.
    final_transactions: dict[str, str] = field(default_factory=dict)
    # The copiers' topics and group, and the group's committed offsets.
    copy: CopyRoute | None = None
    final_copied: dict[TopicPartition, int] = field(default_factory=dict)
    # Per producer id and epoch, the requests that were not answered.
    unanswered: dict[tuple[int, int], int] = field(default_factory=dict)
    # Whether there is an authorizer; the entries that a client sees at the end; and per node, its
    # entries and its decisions.
    has_acls: bool = False
    described_acls: frozenset[Acl] = frozenset()
    final_acls: dict[int, tuple[frozenset[Acl], tuple[bool, ...]]] = field(default_factory=dict)
    # How often each kind of thing happened, for the report of a run.
    totals: dict[str, int] = field(default_factory=dict)
    # Why the cluster did not heal in time, or None if it did.
    heal_failure: str | None = None
    ended_at: float = 0.0
    # The last lines of the simulation's trace.
    trace: list[str] = field(default_factory=list)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one type, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def count(self, name: str, times: int = 1) -> None:
        self.totals[name] = self.totals.get(name, 0) + times

    def is_durable(self, partition: TopicPartition) -> bool:
        return self.durable_topics.get(partition.topic, False)


Checker = Callable[[History], Iterator[Violation]]
