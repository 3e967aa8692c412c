"""The rows of penstock top: the states of a snapshot, and the rates between it and the one before.

A rate is None if it cannot be known: there is no earlier snapshot, the topic was created again, or
a leader did not answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from penstock.cli.top.snapshot import Group, LogDirs, Snapshot, Topic
from penstock.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """`metadata_lag` counts the records of the metadata log that the broker has not fetched. The
    rates are those of the partitions that it leads."""

    id: int
    address: str
    rack: str | None
    state: str
    quorum: str | None
    metadata_lag: int | None
    leaders: int
    replicas: int
    bytes: int | None
    log_dirs: int | None
    offline_log_dirs: int | None
    messages_per_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """`bytes` is the size of the leaders' logs."""

    name: str
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    bytes: int | None
    messages_per_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    id: str
    type: str
    state: str
    members: int | None
    lag: int | None
    lag_change_per_s: float | None


RowT = TypeVar("RowT", bound=BrokerRow | TopicRow | GroupRow)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of all tables, in the order in which they are shown."""

    brokers: Sequence[BrokerRow]
    topics: Sequence[TopicRow]
    groups: Sequence[GroupRow]


# By --sort, the columns of brokers, topics and groups. Names sort upwards, numbers downwards with
# unknown ones last. Rows with equal numbers sort by their names.
SORTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "activity": ((), ("messages_per_s", "bytes"), ("lag", "members")),
    "name": ((), (), ()),
    "bytes": (("bytes",), ("bytes",), ()),
    "partitions": (("replicas",), ("partitions",), ()),
    "unhealthy": (("offline_log_dirs", "metadata_lag"), ("offline", "under_replicated"), ("lag",)),
}


def _sorted(rows: Iterable[RowT], columns: Sequence[str]) -> list[RowT]:
    def key(row: RowT) -> tuple[Any, ...]:
        values = (getattr(row, column) for column in columns)
        numbers = [float("inf") if value is None else -value for value in values]
        return (*numbers, row.name if isinstance(row, TopicRow) else row.id)

    return sorted(rows, key=key)


def rows_of(now: Snapshot, before: Snapshot | None, sort: str) -> Rows:
    rates = _Rates(now, before)
    brokers, topics, groups = SORTS[sort]
    return Rows(
        _sorted(broker_rows(now, rates), brokers),
        _sorted((_topic_row(topic, rates) for topic in now.topics), topics),
        _sorted(group_rows(now, before), groups),
    )


def broker_rows(now: Snapshot, rates: _Rates) -> list[BrokerRow]:
    led: dict[int, list[TopicPartition]] = {}
    replicas: dict[int, int] = {}
    for topic in now.topics:
        for index, partition in enumerate(topic.partitions):
            led.setdefault(partition.leader, []).append(TopicPartition(topic.name, index))
            for replica in partition.replicas:
                replicas[replica] = replicas.get(replica, 0) + 1
    rows = []
    for broker in now.brokers:
        log_dirs = broker.log_dirs
        member = None if now.quorum is None else now.quorum.replicas.get(broker.id)
        partitions = led.get(broker.id, [])
        rows.append(
            BrokerRow(
                broker.id,
                broker.address,
                broker.rack,
                broker.state,
                member and member.role,
                member and member.lag,
                len(partitions),
                replicas.get(broker.id, 0),
                None if log_dirs is None else sum(log_dirs.sizes.values()),
                log_dirs and log_dirs.directories,
                log_dirs and log_dirs.offline,
                rates.messages(partitions),
                rates.bytes(partitions),
            )
        )
    return rows


def group_rows(now: Snapshot, before: Snapshot | None) -> list[GroupRow]:
    earlier = {} if before is None else {group.id: group for group in before.groups}
    elapsed_s = 0.0 if before is None else now.at_s - before.at_s
    return [
        GroupRow(
            group.id,
            group.kind,
            group.state,
            group.members,
            group.lag,
            _change(group, earlier.get(group.id), elapsed_s),
        )
        for group in now.groups
    ]


def _change(now: Group, before: Group | None, elapsed_s: float) -> float | None:
    if before is None or now.lag is None or before.lag is None or elapsed_s <= 0:
        return None
    return (now.lag - before.lag) / elapsed_s


def _topic_row(topic: Topic, rates: _Rates) -> TopicRow:
    names = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
    sizes = [rates.size_now(name) for name in names]
    known = [size for size in sizes if size is not None]
    return TopicRow(
        topic.name,
        len(topic.partitions),
        max((len(partition.replicas) for partition in topic.partitions), default=0),
        sum(len(partition.isr) < len(partition.replicas) for partition in topic.partitions),
        sum(partition.leader < 0 for partition in topic.partitions),
        sum(known) if known else None,
        rates.messages(names),
        rates.bytes(names),
    )


class _Rates:
    """What was appended to partitions between two snapshots.

    Only partitions count that both snapshots know and whose topic has kept its id. The bytes are
    those by which the log of a leader grew; a log that retention made smaller counts as 0.
    """

    def __init__(self, now: Snapshot, before: Snapshot | None) -> None:
        self._elapsed_s = 0.0 if before is None else now.at_s - before.at_s
        self._sizes = _leader_sizes(now)
        self._messages: dict[TopicPartition, int] = {}
        self._bytes: dict[TopicPartition, int] = {}
        if before is None or self._elapsed_s <= 0:
            return
        earlier_ids = {topic.name: topic.id for topic in before.topics}
        earlier_sizes = _leader_sizes(before)
        for topic in now.topics:
            if earlier_ids.get(topic.name) != topic.id:
                continue
            for index in range(len(topic.partitions)):
                name = TopicPartition(topic.name, index)
                end, earlier_end = now.ends.get(name), before.ends.get(name)
                if end is not None and earlier_end is not None:
                    # An unclean election may have truncated the log.
                    self._messages[name] = max(end - earlier_end, 0)
                size, earlier_size = self._sizes.get(name), earlier_sizes.get(name)
                if size and earlier_size and size[0] == earlier_size[0]:
                    self._bytes[name] = max(size[1] - earlier_size[1], 0)

    def size_now(self, name: TopicPartition) -> int | None:
        size = self._sizes.get(name)
        return None if size is None else size[1]

    def messages(self, names: Sequence[TopicPartition]) -> float | None:
        return self._rate(names, self._messages)

    def bytes(self, names: Sequence[TopicPartition]) -> float | None:
        return self._rate(names, self._bytes)

    def _rate(
        self, names: Sequence[TopicPartition], counts: Mapping[TopicPartition, int]
    ) -> float | None:
        known = [counts[name] for name in names if name in counts]
        return sum(known) / self._elapsed_s if known else None


def _leader_sizes(snapshot: Snapshot) -> dict[TopicPartition, tuple[int, int]]:
    """Return the leader of each partition, and the size of its log there."""
    directories: dict[int, LogDirs] = {
        broker.id: broker.log_dirs for broker in snapshot.brokers if broker.log_dirs is not None
    }
    sizes = {}
    for topic in snapshot.topics:
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            of_leader = directories.get(partition.leader)
            size = None if of_leader is None else of_leader.sizes.get(name)
            if size is not None:
                sizes[name] = partition.leader, size
    return sizes


def as_object(now: Snapshot, rows: Rows, at_ms: int, limit: int) -> dict[str, Any]:
    """Return the JSON object of a refresh. It has at most `limit` topics; the totals count all."""
    quorum = now.quorum
    return {
        "at_ms": at_ms,
        "cluster": now.cluster_id,
        "controller": None
        if quorum is None
        else {
            "id": quorum.leader_id,
            "epoch": quorum.epoch,
            "voter_lag": quorum.voter_lag,
            "replicas": [
                {"id": node_id, **replica._asdict()}
                for node_id, replica in sorted(quorum.replicas.items())
            ],
        },
        "totals": {
            "brokers": len(now.brokers),
            "topics": len(now.topics),
            "partitions": now.partitions,
            "groups": now.group_count,
        },
        "brokers": [asdict(row) for row in rows.brokers],
        "topics": [asdict(row) for row in rows.topics[:limit]],
        "groups": [asdict(row) for row in rows.groups],
        "errors": list(now.errors),
    }
