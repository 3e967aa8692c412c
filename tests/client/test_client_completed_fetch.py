"""Fetched batches: which are visible with read_committed and read_uncommitted."""

from __future__ import annotations

import pytest

from penstock.client.consumer.completed_fetch import visible_batches
from penstock.records.batch import CorruptBatch
from penstock.records.build import build_batch, end_transaction_marker


def batch(offset: int, producer_id: int, *values: bytes, transactional: bool = True) -> bytes:
    rows = [(None, value, (), 0) for value in values]
    return build_batch(
        rows,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return end_transaction_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=offset,
    )


LOG = b"".join(
    [
        batch(0, 1, b"a", b"b"),  # aborted by 5
        batch(2, 2, b"c"),  # committed by 4
        batch(3, 3, b"plain", transactional=False),
        marker(4, 2, commit=True),
        marker(5, 1, commit=False),
        batch(6, 1, b"d"),  # committed by 9
        batch(7, 2, b"e"),  # aborted by 8
        marker(8, 2, commit=False),
        marker(9, 1, commit=True),
        batch(10, 2, b"f"),  # committed later
    ]
)


def visible_offsets(log: bytes, aborted: list[tuple[int, int]] | None) -> list[int]:
    return [header.base_offset for _at, header, visible in visible_batches(log, aborted) if visible]


def test_aborted_and_control_batches_are_not_visible() -> None:
    assert visible_offsets(LOG, [(2, 7), (1, 0)]) == [2, 3, 6, 10]
    assert visible_offsets(LOG, None) == visible_offsets(LOG, []) == [0, 2, 3, 6, 7, 10]


def test_a_transaction_that_began_before_the_fetched_offset_is_aborted() -> None:
    from_two = LOG[len(batch(0, 1, b"a", b"b")) :]
    assert visible_offsets(from_two, [(1, 0), (2, 7)]) == [2, 3, 6, 10]


def test_a_corrupt_batch_raises_unless_crcs_are_not_checked() -> None:
    corrupt = bytearray(LOG)
    corrupt[70] ^= 1
    with pytest.raises(CorruptBatch, match="offset 0 does not match its CRC"):
        list(visible_batches(corrupt, None))
    assert list(visible_batches(corrupt, None, check_crcs=False))
