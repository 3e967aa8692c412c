"""The plan of a read: offsets to begin and to end at, what of them is gone, and ranges for Spark's
tasks. Pure: values in, values out.

Offsets carry topic ids, so that a topic that was deleted and created again is noticed. Their form
in a checkpoint is that of Spark's own Kafka source with the ids added, so that a checkpoint of that
one is read too:

    {"orders": {"0": 12, "1": 9, "id": "UyDk4xg0RUWyVZ7Gx7Q7Fg"}}

Spark does not keep where a query began, and asks for it again when a first batch is repeated. So
the end of the first batch carries its beginning along, under a name that no topic can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import UUID

from penstock.ids import NO_UUID, TopicPartition, parse_uuid, uuid_text
from penstock.spark.option_values import MAX_INT64

INITIAL = "#initial"
BEGAN = "#began"
LAG = "#lag"
_ID = "id"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offset of each partition, exclusive where it is an end. `initial` is where a query
    begins; `began` is that of a first batch."""

    at: Mapping[TopicPartition, int]
    ids: Mapping[str, UUID] = field(default_factory=dict)
    initial: bool = False
    began: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = _by_topic(self.at)
        for topic, numbers in found.items():
            if self.ids.get(topic, NO_UUID) != NO_UUID:
                numbers[_ID] = uuid_text(self.ids[topic])
        if self.initial:
            found[INITIAL] = True
        if self.began is not None:
            found[BEGAN] = _by_topic(self.began)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Offsets:
        """ValueError for what no such source can have written."""
        topics = {
            topic: numbers for topic, numbers in found.items() if topic not in (INITIAL, BEGAN, LAG)
        }
        try:
            ids = {
                topic: parse_uuid(numbers[_ID])
                for topic, numbers in topics.items()
                if _ID in numbers
            }
            began = _flat(found[BEGAN]) if BEGAN in found else None
            return cls(_flat(topics), ids, bool(found.get(INITIAL)), began)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"the checkpoint's offsets cannot be read ({error}): is the checkpoint that of "
                "another source?"
            ) from error

    def id_of(self, topic: str) -> UUID:
        return self.ids.get(topic, NO_UUID)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the cluster says now of the partitions that are subscribed to."""

    ids: Mapping[str, UUID]
    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Records from start to end, exclusive, that should be read and cannot; an end of None is not
    known."""

    partition: TopicPartition
    start: int
    end: int | None
    why: str

    def __str__(self) -> str:
        offsets = f"from {self.start} on" if self.end is None else f"{self.start} to {self.end - 1}"
        return f"{self.partition}: offsets {offsets} cannot be read, because {self.why}"


@dataclass(frozen=True, slots=True)
class Range:
    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def beginning(start: Offsets, now: Snapshot) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """Where to go on in every partition that there is now, and what was missed. New partitions are
    read from their start."""
    begin: dict[TopicPartition, int] = {}
    losses = [
        _gone(one, at)
        for one, at in start.at.items()
        if one not in now.latest and not _recreated(start, now, one.topic)
    ]
    for one, latest in now.latest.items():
        earliest = now.earliest[one]
        if _recreated(start, now, one.topic):
            at = start.at.get(one, 0)
            losses.append(DataLoss(one, at, None, "the topic was deleted and created again since"))
            begin[one] = earliest
            continue
        at = start.at.get(one, 0)
        if at < earliest:
            losses.append(
                DataLoss(
                    one,
                    at,
                    earliest,
                    f"the log begins at {earliest}: retention or a deletion of records took them",
                )
            )
        elif at > latest:
            losses.append(
                DataLoss(
                    one,
                    latest,
                    at,
                    f"the log ends at {latest}: it lost its end, as in an unclean election",
                )
            )
        begin[one] = min(max(at, earliest), latest)
    return begin, losses


def limited(
    begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], maximum: int
) -> dict[TopicPartition, int]:
    """Ends that take about `maximum` records in all, from each partition in proportion to what it
    has, and at least one of each."""
    sizes = {one: max(end - begin[one], 0) for one, end in latest.items()}
    total = sum(sizes.values())
    if total <= maximum:
        return dict(latest)
    return {
        one: begin[one] + (max(maximum * size // total, 1) if size else 0)
        for one, size in sizes.items()
    }


def ranges(start: Offsets, end: Offsets, now: Snapshot) -> tuple[list[Range], list[DataLoss]]:
    """What a batch from start to end reads. On a restart the cluster may have changed since the end
    was written down."""
    if end.began is not None:
        start = Offsets(end.began, end.ids)
    alive = {
        one: at
        for one, at in end.at.items()
        if one in now.earliest and not _recreated(end, now, one.topic)
    }
    lost = [
        _gone(one, start.at.get(one, 0), at)
        for one, at in end.at.items()
        if one not in alive and start.at.get(one, 0) < at
    ]
    earliest = {one: min(now.earliest[one], at) for one, at in alive.items()}
    begin, losses = beginning(start, Snapshot({**start.ids, **end.ids}, earliest, alive))
    seen = [one for one in losses if one.partition in alive]
    found = [
        Range(one.topic, now.ids.get(one.topic, NO_UUID), one.partition, begin[one], at)
        for one, at in alive.items()
    ]
    return [one for one in found if one.size > 0], lost + seen


def split(
    whole: Iterable[Range], min_partitions: int | None = None, max_records: int | None = None
) -> list[Range]:
    """One task for a partition; more where a task would have more than `max_records`, or where
    there would be fewer than `min_partitions`: then large ranges are cut, in proportion to their
    size."""
    parts = [one for one in whole if one.size > 0]
    if max_records is not None:
        parts = [piece for one in parts for piece in _cut(one, -(-one.size // max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(one.size for one in parts)
    large = [one for one in parts if one.size * min_partitions * 2 >= 3 * total]
    among, wanted = sum(one.size for one in large), min_partitions - len(parts) + len(large)
    return [
        piece
        for one in parts
        for piece in (_cut(one, _share(one.size, among, wanted)) if one in large else [one])
    ]


def _share(size: int, total: int, parts: int) -> int:
    return max((2 * size * parts + total) // (2 * total), 1)


def _cut(one: Range, parts: int) -> list[Range]:
    parts = min(parts, one.size)
    edges = [one.start + one.size * index // parts for index in range(parts + 1)]
    return [
        Range(one.topic, one.topic_id, one.partition, start, end) for start, end in pairwise(edges)
    ]


def _recreated(known: Offsets, now: Snapshot, topic: str) -> bool:
    """Brokers from before topic ids (KIP-516) say none."""
    before, after = known.id_of(topic), now.ids.get(topic, NO_UUID)
    return before != after and NO_UUID not in (before, after)


def _gone(partition: TopicPartition, start: int, end: int | None = None) -> DataLoss:
    return DataLoss(
        partition, start, end, "the partition does not exist any more: its topic was deleted"
    )


def _by_topic(at: Mapping[TopicPartition, int]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in sorted(at):
        found.setdefault(one.topic, {})[str(one.partition)] = at[one]
    return found


def _flat(topics: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    found = {}
    for topic, numbers in topics.items():
        for key, offset in numbers.items():
            if key == _ID:
                continue
            if not key.isdecimal() or type(offset) is not int or not 0 <= offset <= MAX_INT64:
                raise ValueError(f"{topic}: {key!r} is no partition, or {offset!r} no offset")
            found[TopicPartition(topic, int(key))] = offset
    return found
