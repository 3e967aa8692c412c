"""penstock log dump on files of Penstock and of Apache Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import build
from penstock.ids import TopicPartition
from penstock.records.compression import Codec
from penstock.world import World
from tests.log.making import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    marker,
    open_store,
    sequenced,
)

KAFKA = Path(__file__).parent.parent / "fixtures" / "kafka-4.3"


def dump(*arguments: str | Path) -> Result:
    return CliRunner().invoke(build(), ["log", "dump", *map(str, arguments)])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cleanly closed partition with plain, transactional and control batches."""

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        log.append_as_leader(batch("hello", "world", codec=Codec.ZSTD), 5)
        log.append_as_leader(sequenced(7, 0, "aborted", transactional=True), 5)
        log.append_as_leader(marker(7, committed=False), 5, from_client=False)
        for number in range(40):
            log.append_as_leader(batch(f"value {number}"), 6)
        await store.close()

    in_real_world(tmp_path, main)
    return tmp_path / "data" / str(PARTITION)


def test_a_segment_is_printed_by_batch_and_by_record(directory: Path) -> None:
    segment = directory / "00000000000000000000.log"
    batches = dump(segment)
    assert batches.exit_code == 0
    first, second, third = batches.stdout.splitlines()[:3]
    assert first.startswith("@0  offsets 0..1  2 records")
    assert "zstd" in first
    assert "epoch 5" in first
    assert "producer 7 epoch 0  sequences 0..0  transactional" in second
    assert "transactional  control" in third
    assert "'hello'" not in batches.stdout
    records = dump("--records", segment)
    assert "    0  2023-11-14T22:13:20.000Z  key null  value 'hello'" in records.stdout
    assert "ABORT" in records.stdout


def test_indexes_snapshots_and_checkpoints_are_printed(directory: Path) -> None:
    assert "offset" in dump(directory / "00000000000000000000.index").stdout
    assert (
        "timestamp 2023-11-14T22:13:20" in dump(directory / "00000000000000000000.timeindex").stdout
    )
    aborted = dump(directory / "00000000000000000000.txnindex").stdout
    assert aborted.splitlines()[0] == "aborted: producer 7  offsets 2..3  last stable offset 4"
    [*_, snapshot] = sorted(directory.glob("*.snapshot"))
    assert "producer 7  epoch 0  last sequence 0" in dump(snapshot).stdout
    assert dump(directory / "leader-epoch-checkpoint").stdout == "0\n2\n5 0\n6 4\n"


def test_corruption_is_reported_and_fails_the_command(directory: Path) -> None:
    segment = directory / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    result = dump(segment)
    assert result.exit_code == 1
    assert "checksum" in result.output
    index = directory / "00000000000000000000.index"
    index.write_bytes(index.read_bytes() + b"xyz")
    assert dump(index).exit_code == 1
    [*_, snapshot] = sorted(directory.glob("*.snapshot"))
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    assert dump(snapshot).exit_code == 1
    missing = dump(directory / "00000000000000000009.log")
    assert missing.exit_code == 1
    assert "No such file" in missing.output


def test_files_of_apache_kafka_are_printed() -> None:
    files = [
        path
        for path in sorted(KAFKA.rglob("*"))
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    ]
    assert len(files) > 40
    result = dump("--records", *files)
    assert result.exit_code == 0, result.output
    assert "LEADER_CHANGE" in result.stdout


def test_records_of_coordinators_logs_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    (segment,) = KAFKA.rglob("__transaction_state-0/*.log")
    lines = dump("--records", segment).stdout
    assert "TransactionLog  transactional_id=" in lines
    assert "transaction_status=1 (Ongoing)" in lines
    assert "transaction_partitions=[{topic=" in lines
    # The directory of a relative path counts too.
    monkeypatch.chdir(segment.parent)
    assert dump("--records", segment.name).stdout == lines
    (segment,) = KAFKA.rglob("__consumer_offsets-0/*.log")
    assert "OffsetCommit  group='" in dump("--records", segment).stdout


def test_a_record_that_cannot_be_decoded_is_printed_as_it_is(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(TopicPartition("__transaction_state", 0), TOPIC_ID, SMALL)
        log.append_as_leader(batch("strange"), 5)
        await store.close()

    in_real_world(tmp_path, main)
    (segment,) = tmp_path.rglob("*.log")
    result = dump("--records", segment)
    assert result.exit_code == 0
    assert "key null  value 'strange'  (cannot be decoded: " in result.stdout


def test_the_installed_command_prints_its_help() -> None:
    penstock = Path(sys.executable).parent / "penstock"
    output = subprocess.run([penstock, "--help"], capture_output=True, text=True, check=True).stdout
    assert "format" in output
    assert "log" in output
