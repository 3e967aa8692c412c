"""The rules of INVARIANTS.md over the history of a run of a cluster: what clients can see of them.
One small checker a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.ids import TopicPartition
from penstock.sim.cluster.history import (
    Acknowledged,
    ClocksAlone,
    Denied,
    History,
    Read,
    Sent,
    Stolen,
    TopicCreated,
)


class Violation(NamedTuple):
    at: float
    text: str


Checker = Callable[[History], Iterator[Violation]]


def nothing_acknowledged_is_lost(history: History) -> Iterator[Violation]:
    """Rule 1."""
    values = {
        partition: {value for _offset, value in records}
        for partition, records in history.final.items()
    }
    for event in _promised_writes(history):
        if event.partition in values and event.value not in values[event.partition]:
            yield Violation(
                event.at,
                (
                    f"{event.value!r} was acknowledged at offset {event.offset} of "
                    f"{event.partition}, "
                    "and is lost"
                ),
            )
    for denied in history.of(Denied):
        if history.is_promised(denied.partition):
            yield Violation(
                denied.at,
                (
                    f"{denied.consumer} had read {denied.partition} up to {denied.offset}, which "
                    "is "
                    "now out of range"
                ),
            )


def topics_created_are_there(history: History) -> Iterator[Violation]:
    """Rule 1, of metadata."""
    for event in history.of(TopicCreated):
        if history.topics and event.topic not in history.topics:
            yield Violation(event.at, f"topic {event.topic} was created, and is not there")


def acknowledged_is_committed(history: History) -> Iterator[Violation]:
    """Rule 2: with acks=all nobody hears of success before the watermark has passed the record."""
    for event in history.of(Acknowledged):
        if history.producers[event.producer].acks_all and event.offset >= event.highest:
            text = f"{event.value!r} was acknowledged at offset {event.offset} of {event.partition}"
            yield Violation(event.at, f"{text}, but no watermark was above {event.highest}")


def one_value_an_offset(history: History) -> Iterator[Violation]:
    """Rule 3: all acknowledgements and all reads, ever, agree."""
    seen: dict[tuple[TopicPartition, int], bytes] = {}
    events: list[Acknowledged | Read] = [*_promised_writes(history), *history.of(Read)]
    told = [(event.at, event.partition, event.offset, event.value) for event in events]
    told += [
        (history.ended, partition, offset, value)
        for partition, records in history.final.items()
        for offset, value in records
    ]
    for at, partition, offset, value in told:
        if (
            offset >= 0
            and history.is_promised(partition)
            and seen.setdefault((partition, offset), value) != value
        ):
            yield Violation(
                at,
                (
                    f"offset {offset} of {partition} was {seen[partition, offset]!r} once, and is "
                    f"{value!r} now"
                ),
            )


def idempotent_means_once(history: History) -> Iterator[Violation]:
    """Rule 4."""
    for partition, records in history.final.items():
        seen: dict[bytes, int] = {}
        for offset, value in records:
            if (
                history.producers[producer_of(value)].idempotent
                and seen.setdefault(value, offset) != offset
            ):
                yield Violation(
                    history.ended,
                    f"{value!r} is at offsets {seen[value]} and {offset} of {partition}",
                )


def log_order_is_send_order(history: History) -> Iterator[Violation]:
    """Rule 5, for what was acknowledged: what was given up may still arrive, and a plain producer's
    retry may come twice."""
    number = {event.value: count for count, event in enumerate(history.of(Sent))}
    acknowledged = {event.value for event in history.of(Acknowledged)}
    for partition, records in history.final.items():
        last: dict[str, bytes] = {}
        for value in _first_occurrences(records):
            if value not in acknowledged:
                continue
            before = last.get(producer_of(value))
            if before is not None and number[before] > number[value]:
                yield Violation(
                    history.ended,
                    f"{value!r} was sent before {before!r}, and lies after it in {partition}",
                )
            last[producer_of(value)] = value


def offsets_are_dense(history: History) -> Iterator[Violation]:
    """Rule 6: for the reader of everything, and for each that reads along."""
    for partition, records in history.final.items():
        offsets = [offset for offset, _value in records]
        if offsets != list(range(len(offsets))):
            yield Violation(history.ended, f"the offsets of {partition} are not dense: {offsets}")
    after: dict[tuple[str, TopicPartition], int] = {}
    for event in history.of(Read):
        expected = after.get((event.consumer, event.partition), 0)
        if event.offset != expected and history.is_promised(event.partition):
            yield Violation(
                event.at,
                (
                    f"{event.consumer} read offset {event.offset} of {event.partition}, where "
                    f"{expected} was next"
                ),
            )
        after[event.consumer, event.partition] = event.offset + 1


def nothing_above_the_watermark_is_served(history: History) -> Iterator[Violation]:
    """Rule 8."""
    for event in history.of(Read):
        if event.offset >= event.highest:
            text = (
                f"{event.consumer} read offset {event.offset} of {event.partition}, but no "
                f"watermark was above {event.highest}"
            )
            yield Violation(event.at, text)


def impostors_get_no_more(history: History) -> Iterator[Violation]:
    """Rule 8, for a client that poses as a replica."""
    for event in history.of(Stolen):
        if event.end_offset > event.highest:
            text = (
                f"a client that posed as broker {event.replica} got {event.partition} up to "
                f"{event.end_offset}"
            )
            yield Violation(event.at, f"{text}, but no watermark was above {event.highest}")


def everything_heals(history: History) -> Iterator[Violation]:
    """Rule 25."""
    if history.unhealed is not None:
        yield Violation(history.ended, history.unhealed)


def clocks_do_not_matter(history: History) -> Iterator[Violation]:
    """Rule 26: clocks that jump in a healthy cluster move no leader. (That they lose nothing is
    what all the other checkers see.)"""
    for event in history.of(ClocksAlone):
        if event.elections:
            yield Violation(
                event.at,
                f"the clocks jumped in a healthy cluster, and {event.elections} leaders moved",
            )


def producer_of(value: bytes) -> str:
    """Values are `producer:number`."""
    return value.partition(b":")[0].decode()


def _promised_writes(history: History) -> list[Acknowledged]:
    return [
        event
        for event in history.of(Acknowledged)
        if history.producers[event.producer].acks_all and history.is_promised(event.partition)
    ]


def _first_occurrences(records: list[tuple[int, bytes]]) -> list[bytes]:
    return list(dict.fromkeys(value for _offset, value in records))
