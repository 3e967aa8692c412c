"""The headers and records of built batches."""

from __future__ import annotations

import pytest

from penstock.records.batch import crc_matches, read_header, validate
from penstock.records.build import NewRecord, build_batch, end_transaction_marker
from penstock.records.compression import Codec
from penstock.records.record import ControlRecord, control_kind, coordinator_epoch, rows_of


def test_bytes_of_a_small_batch() -> None:
    """Written by hand from the format description, with the CRC of these bytes."""
    batch = build_batch([(b"k", b"v", (("h", b"x"),), 1_700_000_000_000)], leader_epoch=3)
    assert batch[:17].hex() == "0000000000000000" + "0000003e" + "00000003" + "02"
    assert (
        batch[21:61].hex()
        == "0000"
        + "00000000"
        + "0000018bcfe56800" * 2
        + "ffffffffffffffff"
        + "ffff"
        + "ffffffff"
        + "00000001"
    )
    assert batch[61:].hex() == "18" + "00" + "00" + "00" + "026b" + "0276" + "02" + "0268" + "0278"
    assert crc_matches(batch, 0, read_header(batch))


def test_defaults_are_those_of_a_plain_producer() -> None:
    header = read_header(build_batch([NewRecord(None, None)]))
    assert (header.base_offset, header.leader_epoch, header.attributes) == (0, -1, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)


@pytest.mark.parametrize("codec", list(Codec))
def test_all_settings_reach_the_header(codec: Codec) -> None:
    batch = build_batch(
        (NewRecord(b"k", b"v" * 100, (), time) for time in (30, 10, 20)),
        base_offset=5,
        codec=codec,
        leader_epoch=6,
        producer_id=7,
        producer_epoch=8,
        base_sequence=2**31 - 1,
        transactional=True,
        append_time_ms=99,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch, header.record_count) == (
        5,
        7,
        6,
        3,
    )
    assert (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
    ) == (7, 8, 2**31 - 1, 1)
    assert (header.base_timestamp, header.max_timestamp) == (30, 99)
    assert (header.codec, header.is_transactional, header.log_append_time, header.is_control) == (
        codec,
        True,
        True,
        False,
    )
    assert validate(memoryview(batch), max_batch_bytes=len(batch), from_client=False) == [header]


def test_a_level_is_passed_on() -> None:
    records = [NewRecord(b"%d" % (i * i), b"%d" % (i % 7)) for i in range(2000)]
    assert len(build_batch(records, codec=Codec.GZIP, level=9)) < len(
        build_batch(records, codec=Codec.GZIP, level=1)
    )


@pytest.mark.parametrize(
    ("commit", "kind"), [(True, ControlRecord.COMMIT), (False, ControlRecord.ABORT)]
)
def test_transaction_markers(commit: bool, kind: ControlRecord) -> None:
    marker = end_transaction_marker(
        commit=commit,
        producer_id=7,
        producer_epoch=8,
        coordinator_epoch=9,
        timestamp=10,
        base_offset=11,
        leader_epoch=12,
    )
    header = read_header(marker)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, -1)
    ((offset, timestamp, key, value, headers),) = rows_of(marker, header)
    assert (offset, timestamp, headers, header.leader_epoch) == (11, 10, (), 12)
    assert control_kind(key) is kind
    assert coordinator_epoch(value) == 9
    assert value is not None
    assert value.hex() == "000000000009"


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])
