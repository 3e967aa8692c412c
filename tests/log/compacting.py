"""Keyed records, compactions of a store, and a reader of committed records, for the tests of
compaction."""

from __future__ import annotations

from penstock.config.topic import LogConfig
from penstock.log.compaction.run import Pace
from penstock.log.log import Log
from penstock.log.store import LogStore
from penstock.records.batch import BatchHeader, batches
from penstock.records.build import build_batch
from penstock.records.compression import Codec
from penstock.records.record import ControlRecord, Record, control_kind, records_of
from tests.log.making import NOW_MS

Keyed = tuple[str, str | None]

COMPACTED = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
    file_delete_delay_ms=0,
    retention_ms=-1,
)


def keyed(
    *records: Keyed,
    codec: Codec = Codec.NONE,
    producer: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp: int = NOW_MS,
) -> bytes:
    return build_batch(
        [
            (key.encode(), None if value is None else value.encode(), (), timestamp)
            for key, value in records
        ],
        codec=codec,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=sequence,
        transactional=transactional,
    )


def stable_offset(log: Log) -> int:
    """Return the last stable offset of a log whose records are all committed."""
    log.producers.advance(log.end_offset)
    unstable = log.producers.first_unstable_offset()
    return log.end_offset if unstable is None else unstable


async def compact(store: LogStore, log: Log, pace: Pace | None = None) -> int:
    """Roll, sync and compact until nothing is due. Return the number of runs."""
    if log.active.size:
        log.roll()
    await log.flushing.all()
    runs = 0
    while await store.compactions.run_once({log.partition: stable_offset(log)}, pace or Pace()):
        runs += 1
    return runs


def all_batches(log: Log) -> list[tuple[BatchHeader, bytes]]:
    found, offset = [], log.start_offset
    while (part := log.read(offset, 1_000_000, below=log.end_offset)) is not None:
        data = part.read()
        found += [
            (header, data[position : position + header.size]) for position, header in batches(data)
        ]
        offset = found[-1][0].next_offset
    return found


def committed(log: Log) -> list[Record]:
    """Return what a read_committed consumer sees: it knows the aborted transactions, and looks for
    their markers."""
    end = stable_offset(log)
    aborted = sorted(
        log.aborted_transactions(log.start_offset, end), key=lambda txn: txn.first_offset
    )
    skipping: set[int] = set()
    seen: list[Record] = []
    for header, batch in all_batches(log):
        if header.base_offset >= end:
            break
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipping.add(aborted.pop(0).producer_id)
        if header.is_control:
            if any(
                control_kind(record.key) is ControlRecord.ABORT
                for record in records_of(batch, header)
            ):
                skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            seen += records_of(batch, header)
    return seen


def last_values(records: list[Record]) -> dict[bytes, bytes]:
    """Return the table that a log describes: tombstones delete keys."""
    table: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
