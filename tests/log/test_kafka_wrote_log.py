"""A log directory of Apache Kafka 4.3.0, opened by Penstock's `Log`: after a clean shutdown, and as
if after a crash."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from penstock.config.topic import LogConfig
from penstock.ids import METADATA_TOPIC
from penstock.log import names
from penstock.log.checkpoint import parse_clean_shutdown, parse_epochs, parse_offsets
from penstock.log.directory import LogDirectory
from penstock.log.files import OpenFiles
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.log import Log
from penstock.log.lookup import offset_for_timestamp
from penstock.log.open import CheckpointedOffsets, open_log
from penstock.log.producers.snapshot import decode_snapshot
from penstock.log.store import LogStore
from penstock.records.batch import batches
from penstock.records.record import records_of
from penstock.world import World
from penstock.world.real import run
from tests.fixtures.kafka_wrote import DATA, Partition, partitions

ALL = partitions()
BY_NAME = pytest.mark.parametrize("wrote", ALL, ids=[str(partition.name) for partition in ALL])
# The settings that the topics were created with; other topics have Kafka's defaults.
CONFIGS = {
    "segments": LogConfig(segment_bytes=2_000, index_interval_bytes=200),
    "compacted": LogConfig(cleanup_policy=("compact",)),
}
REBUILT = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT)


def open_copy(wrote: Partition, tmp_path: Path, *, clean: bool) -> Log:
    """Open a copy: reading must not change Kafka's files, but recovery may."""
    copy = tmp_path / str(wrote.name)
    shutil.copytree(wrote.directory, copy)
    if not clean:
        for path in copy.iterdir():
            if path.suffix in REBUILT or path.name == names.LEADER_EPOCHS:
                path.unlink()

    async def opened(world: World) -> Log:
        found = CheckpointedOffsets(
            clean,
            recovery_point=wrote.log_end_offset if clean else 0,
            start_offset=wrote.log_start_offset,
        )
        directory = LogDirectory(str(tmp_path), UUID(int=4242))
        return await open_log(
            wrote.name,
            directory,
            OpenFiles(world.disk),
            world,
            CONFIGS.get(wrote.name.topic, LogConfig()),
            found,
        )

    return run(opened)


def read_all(log: Log, max_bytes: int) -> bytes:
    """Read whole batches in pieces: a batch that is cut at the end of a piece starts the next."""
    data, offset = b"", log.start_offset
    while (piece := log.read(offset, max_bytes, below=log.end_offset)) is not None:
        piece_data = piece.read()
        for position, header in batches(piece_data):
            data += piece_data[position : position + header.size]
            offset = header.next_offset
    return data


def files_under(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@BY_NAME
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
def test_offsets_are_kafkas(wrote: Partition, tmp_path: Path, clean: bool) -> None:
    log = open_copy(wrote, tmp_path, clean=clean)
    log.producers.advance(log.end_offset)
    unstable = log.producers.first_unstable_offset()
    assert log.topic_id == wrote.topic_id
    assert (log.start_offset, log.end_offset) == (wrote.log_start_offset, wrote.log_end_offset)
    assert (log.end_offset if unstable is None else unstable) == wrote.last_stable_offset


@BY_NAME
@pytest.mark.parametrize("max_bytes", [100, 1_000_000])
def test_bytes_are_kafkas(wrote: Partition, tmp_path: Path, max_bytes: int) -> None:
    kept = b"".join(
        wrote.batches()[position : position + header.size]
        for position, header in batches(wrote.batches())
        if header.next_offset > wrote.log_start_offset
    )
    assert read_all(open_copy(wrote, tmp_path, clean=True), max_bytes) == kept


@BY_NAME
def test_opening_a_clean_log_changes_nothing(wrote: Partition, tmp_path: Path) -> None:
    log = open_copy(wrote, tmp_path, clean=True)
    read_all(log, 1000)
    assert files_under(Path(log.path)) == files_under(wrote.directory)


@BY_NAME
def test_recovery_rebuilds_the_files_beside_kafkas_segments(
    wrote: Partition, tmp_path: Path
) -> None:
    log = open_copy(wrote, tmp_path, clean=False)
    kafka, mine = files_under(wrote.directory), files_under(Path(log.path))
    for name in kafka:
        if name.endswith((names.LOG, names.OFFSET_INDEX, names.TXN_INDEX)):
            assert mine[name] == kafka[name], name
    last_snapshot = max((name for name in kafka if name.endswith(names.SNAPSHOT)), default=None)
    if last_snapshot is not None:
        state = {
            number: (producer.epoch, producer.coordinator_epoch, producer.txn_first_offset)
            for number, producer in log.producers.producers.items()
        }
        saved = decode_snapshot(kafka[last_snapshot])
        assert state == {
            number: (producer.epoch, producer.coordinator_epoch, producer.txn_first_offset)
            for number, producer in saved
        }
    epochs = LeaderEpochs(parse_epochs(kafka[names.LEADER_EPOCHS]))
    for read in wrote.read():
        assert (
            log.epochs.epoch_at(read.record.offset)
            == epochs.epoch_at(read.record.offset)
            == read.leader_epoch
        )


@pytest.mark.parametrize("topic", ["segments", "compacted"])
def test_rebuilt_time_indexes_are_kafkas(topic: str, tmp_path: Path) -> None:
    """Only for partitions that Kafka did not append to after its restart: closing adds an entry
    that recovery does not add."""
    wrote = next(partition for partition in ALL if partition.name.topic == topic)
    log = open_copy(wrote, tmp_path, clean=False)
    kafka, mine = files_under(wrote.directory), files_under(Path(log.path))
    assert {name: mine[name] for name in kafka if name.endswith(names.TIME_INDEX)} == {
        name: data for name, data in kafka.items() if name.endswith(names.TIME_INDEX)
    }


@BY_NAME
def test_read_committed_sees_what_kafkas_consumer_saw(wrote: Partition, tmp_path: Path) -> None:
    log = open_copy(wrote, tmp_path, clean=True)
    below = wrote.last_stable_offset
    aborted = log.aborted_transactions(log.start_offset, below)
    seen = []
    data = wrote.batches()
    for position, header in batches(data):
        hidden = header.is_transactional and any(
            txn.producer_id == header.producer_id
            and txn.first_offset <= header.base_offset <= txn.last_offset
            for txn in aborted
        )
        if not header.is_control and not hidden:
            seen += [
                record.offset
                for record in records_of(data, header, position)
                if log.start_offset <= record.offset < below
            ]
    assert seen == [read.record.offset for read in wrote.read() if read.read_committed]


@BY_NAME
def test_timestamps_are_found(wrote: Partition, tmp_path: Path) -> None:
    """Markers have timestamps too, and Kafka's search finds them."""
    log = open_copy(wrote, tmp_path, clean=True)
    data = wrote.batches()
    every = [
        record
        for position, header in batches(data)
        for record in records_of(data, header, position)
    ]
    records = [record for record in every if record.offset >= log.start_offset]

    async def look_up(world: World) -> None:
        for timestamp in {record.timestamp for record in records}:
            first = next(record for record in records if record.timestamp >= timestamp)
            found = await offset_for_timestamp(log, world, timestamp)
            assert found is not None
            assert found[:2] == (first.timestamp, first.offset)

    run(look_up)


def test_a_log_directory_of_kafka_is_opened_and_closed(tmp_path: Path) -> None:
    """With its checkpoints and its clean shutdown marker; Penstock writes the same checkpoints as
    Kafka."""
    data = tmp_path / "data"
    shutil.copytree(DATA, data)
    shutil.rmtree(data / f"{METADATA_TOPIC}-0")  # the metadata log is no partition of the store

    async def open_and_close(world: World) -> LogStore:
        store = LogStore(world, [LogDirectory(str(data), UUID(int=4242))])
        await store.open(lambda partition: CONFIGS.get(partition.topic, LogConfig()))
        assert not (data / names.CLEAN_SHUTDOWN).exists()
        await store.close(broker_epoch=7)
        return store

    store = run(open_and_close)
    assert store.damaged == {}
    assert {log.partition: (log.start_offset, log.end_offset) for log in store.logs.values()} == {
        partition.name: (partition.log_start_offset, partition.log_end_offset) for partition in ALL
    }
    assert parse_offsets((data / names.RECOVERY_POINTS).read_bytes()) == {
        partition.name: partition.log_end_offset for partition in ALL
    }
    assert parse_offsets((data / names.LOG_STARTS).read_bytes()) == {
        partition.name: partition.log_start_offset for partition in ALL
    }
    assert parse_clean_shutdown((data / names.CLEAN_SHUTDOWN).read_bytes()) == 7
    for partition in ALL:
        kafka, mine = files_under(partition.directory), files_under(data / str(partition.name))
        # Opening a log removes an epoch that began at the log's end and has no record; Kafka
        # does the same.
        del kafka[names.LEADER_EPOCHS]
        assert {name: mine.get(name) for name in kafka} == kafka, partition.name
