"""Logs written by Apache Kafka 4.3.0 (tests/java/make_fixtures.py made them), read by Penstock: the
same offsets, records and bytes."""

from __future__ import annotations

import pytest

from penstock.ids import TopicPartition
from penstock.limits import BATCH_HEADER_BYTES
from penstock.log import names
from penstock.log.checkpoint import (
    parse_clean_shutdown,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from penstock.log.leader_epochs import EpochStart
from penstock.log.producers.snapshot import decode_snapshot, encode_snapshot
from penstock.records.batch import batches, crc_matches
from penstock.records.compression import Codec
from penstock.records.record import read_records
from tests.fixtures.kafka_wrote import DATA, Partition, partition, partitions

ALL = partitions()
BY_NAME = pytest.mark.parametrize("wrote", ALL, ids=[str(partition.name) for partition in ALL])


@BY_NAME
def test_records_are_what_kafkas_consumer_read(wrote: Partition) -> None:
    visible = [
        record
        for record in read_records(wrote.batches())
        if record.offset >= wrote.log_start_offset
    ]
    assert visible == [read.record for read in wrote.read()]


@BY_NAME
def test_batches_are_whole_and_match_the_consumers_metadata(wrote: Partition) -> None:
    data = wrote.batches()
    metadata = {
        read.record.offset: (read.leader_epoch, read.log_append_time) for read in wrote.read()
    }
    end = 0
    for position, header in batches(data):
        assert crc_matches(data, position, header)
        assert header.base_offset >= end
        end = header.next_offset
        for offset in range(header.base_offset, header.next_offset):
            assert metadata.get(offset, (header.leader_epoch, header.log_append_time)) == (
                header.leader_epoch,
                header.log_append_time,
            )
    assert end == wrote.log_end_offset


@pytest.mark.parametrize(
    ("topic", "codec"),
    [(f"codec-{codec.name.lower()}", codec) for codec in Codec]
    + [("snappy-librdkafka", Codec.SNAPPY)],
)
def test_fixtures_have_every_codec(topic: str, codec: Codec) -> None:
    assert {header.codec for _position, header in batches(partition(topic).batches())} >= {codec}


@pytest.mark.parametrize(
    ("topic", "framed"), [("codec-snappy", True), ("snappy-librdkafka", False)]
)
def test_fixtures_have_both_snappy_framings(topic: str, framed: bool) -> None:
    """Java frames it in blocks, librdkafka writes it raw."""
    data = partition(topic).batches()
    assert {
        data[at + BATCH_HEADER_BYTES :].startswith(b"\x82SNAPPY\0") for at, _header in batches(data)
    } == {framed}


@BY_NAME
def test_partition_metadata(wrote: Partition) -> None:
    assert (
        parse_partition_metadata((wrote.directory / names.PARTITION_METADATA).read_bytes())
        == wrote.topic_id
    )


def test_leader_epochs() -> None:
    directory = partition("epochs").directory
    first, second = parse_epochs((directory / names.LEADER_EPOCHS).read_bytes())
    assert (first, second.start_offset) == (EpochStart(0, 0), 3)
    assert second.epoch > 0
    assert {read.leader_epoch for read in partition("epochs").read()} == {first.epoch, second.epoch}


def test_offset_checkpoints() -> None:
    ends = {partition.name: partition.log_end_offset for partition in ALL}
    assert parse_offsets((DATA / names.RECOVERY_POINTS).read_bytes()) == ends
    assert parse_offsets((DATA / names.HIGH_WATERMARKS).read_bytes()) == ends
    assert parse_offsets((DATA / names.LOG_STARTS).read_bytes()) == {
        TopicPartition("trimmed", 0): 5
    }


def test_clean_shutdown_marker() -> None:
    assert parse_clean_shutdown((DATA / names.CLEAN_SHUTDOWN).read_bytes()) > 0


SNAPSHOTS = sorted(DATA.glob(f"*/*{names.SNAPSHOT}"))


@pytest.mark.parametrize("name", [str(path.relative_to(DATA)) for path in SNAPSHOTS])
def test_producer_snapshots_survive_a_round_trip(name: str) -> None:
    data = (DATA / name).read_bytes()
    assert encode_snapshot(dict(decode_snapshot(data))) == data
