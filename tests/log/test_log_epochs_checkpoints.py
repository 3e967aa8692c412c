from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ids import TopicPartition
from penstock.log.checkpoint import (
    CheckpointDamaged,
    clean_shutdown_text,
    epochs_text,
    offset_row,
    offsets_text,
    parse_clean_shutdown,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    partition_metadata_text,
)
from penstock.log.leader_epochs import EpochStart, LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochStart(*entry) for entry in entries])


def test_an_epoch_ends_where_the_next_begins() -> None:
    known = epochs((1, 0), (3, 10), (7, 25))
    assert known.end_offset_for(1, 40) == (1, 10)
    assert known.end_offset_for(2, 40) == (1, 10)
    assert known.end_offset_for(3, 40) == (3, 25)
    assert known.end_offset_for(7, 40) == (7, 40)
    assert known.end_offset_for(8, 40) == (-1, -1)
    assert known.end_offset_for(0, 40) == (0, 0)
    assert epochs().end_offset_for(0, 40) == (-1, -1)


def test_a_new_entry_replaces_entries_that_contradict_it() -> None:
    known = epochs((1, 0), (3, 10), (7, 25))
    known.assign(4, 20)
    assert known.entries == [(1, 0), (3, 10), (4, 20)]
    assert not known.assign(4, 22)
    known.assign(5, 5)
    assert known.entries == [(1, 0), (5, 5)]


def test_epochs_are_truncated_at_both_ends() -> None:
    known = epochs((1, 0), (3, 10), (7, 25))
    assert known.truncate_from_start(15)
    assert known.entries == [(3, 15), (7, 25)]
    assert not known.truncate_from_start(15)
    assert known.truncate_from_end(25)
    assert known.entries == [(3, 15)]
    assert not known.truncate_from_end(16)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100))))
def test_epochs_and_offsets_always_increase(assigned: list[tuple[int, int]]) -> None:
    known = epochs(*assigned)
    assert all(
        a.epoch < b.epoch and a.start_offset < b.start_offset
        for a, b in zip(known.entries, known.entries[1:], strict=False)
    )
    assert parse_epochs(epochs_text(known.entries)) == known.entries


def test_checkpoints_have_kafkas_format() -> None:
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a.b_c-d", 0): 2**62}
    text = offsets_text([offset_row(*entry) for entry in offsets.items()])
    assert text == b"0\n2\nb 1 7\na.b_c-d 0 4611686018427387904\n"
    assert parse_offsets(text) == offsets
    assert epochs_text([EpochStart(0, 0), EpochStart(2, 5)]) == b"0\n2\n0 0\n2 5\n"
    assert partition_metadata_text(UUID(int=1)) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert parse_partition_metadata(partition_metadata_text(UUID(int=1))) == UUID(int=1)
    assert clean_shutdown_text(5) == b'{"version":0,"brokerEpoch":5}'
    assert parse_clean_shutdown(clean_shutdown_text(5)) == 5
    assert parse_clean_shutdown(b"") == -1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\nx\n",
        b"0\n1\na 0 x\n",
        b"0\n1\na 0\n",
        b"0\n-1\n",
        b"\xff",
        b"0\n99999999999\n",
    ],
)
def test_damaged_checkpoints_are_detected(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        parse_offsets(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        b"version: 0\n",
        b"version: 0\ntopic_id: x",
        b"\xff\xff",
    ],
)
def test_damaged_partition_metadata_is_detected(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        parse_partition_metadata(data)


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"brokerEpoch": "x"}'])
def test_damaged_clean_shutdown_markers_are_detected(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        parse_clean_shutdown(data)
