"""Rules of exactly-once copies: every committed input once and in order (rule 15), and committed
offsets that never go back (rule 13)."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.node.shards.shard_set import positive_hash
from penstock.sim.cluster.events import BecameLeader
from penstock.sim.cluster.history import History, Violation
from penstock.sim.cluster.spec import OFFSETS_PARTITIONS
from penstock.sim.cluster.transaction_events import CopyOffsetsFetched, TransactionBegun


def copies_are_exactly_once(history: History) -> Iterator[Violation]:
    """The output is the committed input up to the committed offset: each record once, in order.
    Records and offsets of a transaction are committed together, or neither."""
    route = history.copy
    if route is None or _is_exposed(history):
        return
    for partition, records in history.final_committed.items():
        if partition.topic != route.source:
            continue
        committed = history.final_copied.get(partition, 0)
        expected = [value for offset, value in records if offset < committed]
        target = TopicPartition(route.target, partition.partition)
        copied = [
            value.partition(b"=")[2] for _offset, value in history.final_committed.get(target, [])
        ]
        if copied != expected:
            at = next(
                (
                    index
                    for index, (is_, was) in enumerate(zip(copied, expected, strict=False))
                    if is_ != was
                ),
                min(len(copied), len(expected)),
            )
            yield Violation(
                history.ended_at,
                f"{partition} was copied up to offset {committed}: {len(expected)} records, but "
                f"{target} has {len(copied)}; the first difference is record {at}: "
                f"{expected[at : at + 1]} became {copied[at : at + 1]}",
            )


def copied_offsets_never_go_back(history: History) -> Iterator[Violation]:
    """Rule 13, for offsets that transactions commit. A former coordinator that is isolated answers
    with what it had, and is not checked."""
    if history.copy is None or not history.durable_groups or _is_exposed(history):
        return
    index = positive_hash(history.copy.group) % OFFSETS_PARTITIONS
    coordinated = TopicPartition(OFFSETS_TOPIC, index)
    leaders = [event for event in history.of(BecameLeader) if event.partition == coordinated]
    highest: dict[TopicPartition, int] = {}
    for fetched in sorted(history.of(CopyOffsetsFetched), key=lambda event: event.started):
        known = [event for event in leaders if event.at <= fetched.started]
        if not known or max(known, key=lambda event: event.epoch).node != fetched.broker:
            continue
        for partition, before in highest.items():
            now = fetched.offsets.get(partition)
            if now is None or now < before:
                yield Violation(
                    fetched.at, f"{before} was committed for {partition}, and it is {now} now"
                )
        for partition, offset in fetched.offsets.items():
            highest[partition] = max(offset, highest.get(partition, 0))


def _is_exposed(history: History) -> bool:
    """Whether a late request of a copier with the old protocol may have changed its next
    transaction."""
    return any(
        not begun.bumps
        and begun.txn.startswith("copy")
        and history.unanswered.get((begun.producer_id, begun.epoch), 0) > 0
        for begun in history.of(TransactionBegun)
    )
