"""Rules of compacted topics, over what a producer sent and what a consumer and replicas have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from penstock.sim.cluster.events import KeyedRecordAcknowledged, KeyedRecordSent
from penstock.sim.cluster.history import History, KeyedRecord, Violation


def last_value_of_each_key_survives(history: History) -> Iterator[Violation]:
    """Rules 1 and 6: the newest record of a key is the last acknowledged one or a later one, and a
    key without records was deleted. The producer's records are in the order of their numbers."""
    sent: dict[bytes, list[KeyedRecordSent]] = {}
    for event in history.of(KeyedRecordSent):
        sent.setdefault(event.key, []).append(event)
    acknowledged: dict[bytes, int] = {}
    for acked in history.of(KeyedRecordAcknowledged):
        if history.is_durable(acked.partition):
            acknowledged[acked.key] = max(acked.number, acknowledged.get(acked.key, 0))
    for reader, records in history.final_keyed.items():
        newest = {record.key: record for record in records}
        for key, number in acknowledged.items():
            found = newest.get(key)
            deleted = any(event.tombstone and event.number >= number for event in sent[key])
            if found is None and not deleted:
                text = f"record {number} of key {key!r} was acknowledged"
                yield Violation(history.ended_at, f"{text}, but {reader} has no record of the key")
            elif found is not None and found.number < number:
                text = f"record {number} of key {key!r} was acknowledged, but {reader} has"
                yield Violation(history.ended_at, f"{text} {found.number} as its newest")


def compaction_keeps_the_order(history: History) -> Iterator[Violation]:
    """Rules 3 and 6: offsets increase, the numbers of a key too, and an offset has one record."""
    seen: dict[int, KeyedRecord] = {}
    for reader, records in history.final_keyed.items():
        for before, after in pairwise(records):
            if after.offset <= before.offset:
                text = f"{reader} has offset {after.offset} after {before.offset}"
                yield Violation(history.ended_at, text)
        last: dict[bytes, KeyedRecord] = {}
        for record in records:
            earlier = last.get(record.key)
            if earlier is not None and record.number <= earlier.number:
                text = f"{reader} has record {record.number} of key {record.key!r}"
                yield Violation(history.ended_at, f"{text} after record {earlier.number}")
            last[record.key] = record
            first = seen.setdefault(record.offset, record)
            if first != record:
                text = f"offset {record.offset} is record {record.number} for {reader}"
                yield Violation(history.ended_at, f"{text}, and was {first.number} for another")
