"""Decode fetched batches, without control batches and, if read_committed, aborted ones.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.ids import Buffer, TopicPartition
from penstock.records.batch import BatchHeader, CorruptBatch, batches, crc_matches
from penstock.records.record import ControlRecord, Headers, control_kind, rows_of


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


# Producer id and first offset of a transaction, as a fetch response lists them.
AbortedTransaction = tuple[int, int]


def decode_records(
    partition: TopicPartition,
    data: Buffer,
    aborted: Iterable[AbortedTransaction] | None,
    position: int,
    *,
    check_crcs: bool,
) -> tuple[list[ConsumerRecord], int]:
    """Return the records from `position` on, and the next position."""
    topic, index = partition
    records: list[ConsumerRecord] = []
    following = position
    for at, header, visible in visible_batches(data, aborted, check_crcs=check_crcs):
        if visible:
            # A fetch at an offset inside a batch returns the whole batch.
            records += [
                ConsumerRecord(topic, index, *row)
                for row in rows_of(data, header, at)
                if row[0] >= position
            ]
        following = max(following, header.next_offset)
    return records, following


def visible_batches(
    records: Buffer, aborted: Iterable[AbortedTransaction] | None, *, check_crcs: bool = True
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield position, header and visibility of every complete batch.

    `aborted` is the fetch response's list of aborted transactions, or None for read_uncommitted.
    """
    ahead = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for at, header in batches(records):
        if check_crcs and not crc_matches(records, at, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} does not match its CRC")
        while ahead and ahead[-1][1] <= header.last_offset:
            aborting.add(ahead.pop()[0])
        if header.is_control:
            if _is_abort(records, header, at):
                aborting.discard(header.producer_id)
            yield at, header, False
        else:
            yield at, header, not (header.is_transactional and header.producer_id in aborting)


def _is_abort(records: Buffer, header: BatchHeader, at: int) -> bool:
    """Compaction may have emptied a control batch; an empty one is not an abort marker."""
    rows = rows_of(records, header, at)
    return bool(rows) and control_kind(rows[0][2]) is ControlRecord.ABORT
