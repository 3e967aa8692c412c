"""What a consumer is shown of the batches that it fetched: neither control batches nor, with
read_committed, aborted ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.ids import Buffer
from penstock.records.batch import BatchHeader, CorruptBatch, batches, crc_matches
from penstock.records.record import ControlRecord, control_kind, rows_of


def shown_batches(
    records: Buffer, aborted: Iterable[tuple[int, int]] | None, *, check_crcs: bool = True
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Position, header and whether it is shown, for every whole batch. `aborted` is what the broker
    says of transactions that were aborted (producer id, first offset), or None to read what is not
    committed too."""
    ahead = sorted(aborted or (), key=lambda one: one[1], reverse=True)
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
    """A batch that compaction emptied says nothing any more."""
    rows = rows_of(records, header, at)
    return bool(rows) and control_kind(rows[0][2]) is ControlRecord.ABORT
