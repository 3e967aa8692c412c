"""Rules of the last stable offset (rules 8 and 15), and that every transaction ends."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.ids import TopicPartition
from penstock.sim.cluster.checkers.transaction_log import Span, spans_of
from penstock.sim.cluster.history import History, Violation
from penstock.sim.cluster.transaction_events import (
    IsolatedRead,
    StableOffsetAdvanced,
    StableOffsetFetched,
)


def stable_offset_never_goes_back(history: History) -> Iterator[Violation]:
    """Rule 15, within a leader epoch: on the leader, and as it reports it to consumers."""
    on_leader: dict[tuple[TopicPartition, int], int] = {}
    for event in history.of(StableOffsetAdvanced):
        before = on_leader.get((event.partition, event.epoch), -1)
        if event.last_stable_offset < before:
            yield Violation(
                event.at,
                f"the last stable offset of {event.partition} went back from {before} to "
                f"{event.last_stable_offset} in leader epoch {event.epoch}",
            )
        on_leader[event.partition, event.epoch] = event.last_stable_offset
    fetched: dict[tuple[str, int, TopicPartition, int], int] = {}
    for read in history.of(StableOffsetFetched):
        key = (read.reader, read.broker, read.partition, read.epoch)
        before = fetched.get(key, -1)
        if read.offset < before:
            yield Violation(
                read.at,
                f"broker {read.broker} reported the last stable offset {before} of "
                f"{read.partition}, and then {read.offset} in leader epoch {read.epoch}",
            )
        fetched[key] = read.offset


def stable_records_are_decided(history: History) -> Iterator[Violation]:
    """Rules 8 and 15: every transaction below the last stable offset has a marker below the high
    watermark, which cannot be lost."""
    spans: dict[TopicPartition, list[Span]] = {}
    for event in history.of(StableOffsetAdvanced):
        name = event.partition
        if not history.is_durable(name) or name not in history.final_logs:
            continue
        if name not in spans:
            spans[name] = spans_of(history, name)
        for span in spans[name]:
            if span.first_offset >= event.last_stable_offset:
                break
            if span.marker_offset is None or span.marker_offset >= event.high_watermark:
                yield Violation(
                    event.at,
                    f"node {event.node} has the last stable offset {event.last_stable_offset} of "
                    f"{name} with the high watermark {event.high_watermark}, but the transaction "
                    f"at {span.first_offset} ends at {span.marker_offset}",
                )


def nothing_above_the_stable_offset_is_served(history: History) -> Iterator[Violation]:
    """Rule 8, for read_committed; for read_uncommitted the bound is the high watermark."""
    for read in history.of(IsolatedRead):
        if read.offset >= read.max_visible:
            bound = "last stable offset" if read.committed else "high watermark"
            yield Violation(
                read.at,
                f"{read.reader} read offset {read.offset} of {read.partition}, but no {bound} was "
                f"above {read.max_visible}",
            )


def no_transaction_hangs(history: History) -> Iterator[Violation]:
    """Rules 15 and 25: when all clients have ended and every timeout has passed, no transaction is
    open, and the last stable offset is the high watermark."""
    if not history.final_committed:
        return
    for transactional_id, state in history.final_transactions.items():
        yield Violation(history.ended_at, f"the transaction of {transactional_id} is {state}")
    for partition, replicas in history.final_stable.items():
        for node, (stable, high_watermark) in replicas.items():
            if stable != high_watermark:
                yield Violation(
                    history.ended_at,
                    f"{partition} on {node} has the last stable offset {stable}, and the high "
                    f"watermark {high_watermark}",
                )
