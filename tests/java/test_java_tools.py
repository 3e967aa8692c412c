"""Apache Kafka's tools and broker on files that Penstock wrote.

Run by `make test-java`; needs a JDK, and Maven for the first run.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from penstock.log import names
from penstock.log.checkpoint import parse_partition_metadata
from penstock.records.batch import batches
from penstock.records.record import read_records
from tests.fixtures.kafka_wrote import DATA
from tests.java.dump_log import CONTENTS, SANITY, VERIFY, dump, dumped_batches
from tests.java.kafka_jars import compile_java, run_java
from tests.java.kafka_node import KafkaNode
from tests.java.make_wire_bytes import TARGET as WIRE_BYTES
from tests.java.make_wire_bytes import wire_bytes
from tests.java.penstock_log import COMMITTED_OFFSETS, TOPICS, write_penstock_log

pytestmark = pytest.mark.java

READABLE = ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot")


def files_of(directory: Path) -> list[Path]:
    return sorted(path for pattern in READABLE for path in directory.glob(pattern))


def test_the_wire_bytes_fixture_is_what_kafka_encodes() -> None:
    assert gzip.decompress(WIRE_BYTES.read_bytes()).decode() == wire_bytes()


@pytest.mark.parametrize("flags", [CONTENTS, SANITY, VERIFY], ids=["contents", "sanity", "verify"])
def test_dump_log_reports_no_problem_in_kafkas_files(flags: tuple[str, ...]) -> None:
    files = [path for name in ("segments-0", "transactions-0") for path in files_of(DATA / name)]
    _printed, complaints = dump(files, flags)
    assert complaints == []


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("00000000000000000027.log", 100),
        ("00000000000000000027.index", 7),
        ("00000000000000000120.snapshot", 20),
    ],
)
def test_dump_log_reports_a_flipped_bit(tmp_path: Path, name: str, position: int) -> None:
    directory = tmp_path / "segments-0"
    shutil.copytree(DATA / "segments-0", directory)
    data = bytearray((directory / name).read_bytes())
    data[position] ^= 1
    (directory / name).write_bytes(data)
    _printed, complaints = dump(files_of(directory), CONTENTS)
    assert complaints


@pytest.fixture(scope="module")
def penstock_wrote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("penstock-wrote")
    write_penstock_log(
        directory, {topic: UUID(int=1000 + number) for number, topic in enumerate(TOPICS)}
    )
    return directory


def written(directory: Path) -> list[Path]:
    return [path for topic in TOPICS for path in files_of(directory / f"{topic}-0")]


def test_penstock_writes_every_kind_of_file(penstock_wrote: Path) -> None:
    files = written(penstock_wrote)
    assert {path.suffix for path in files} == {pattern.removeprefix("*") for pattern in READABLE}
    assert sum(path.suffix == ".index" and path.stat().st_size > 0 for path in files) > 3


@pytest.mark.parametrize("flags", [CONTENTS, SANITY, VERIFY], ids=["contents", "sanity", "verify"])
def test_dump_log_reports_no_problem_in_penstocks_files(
    penstock_wrote: Path, flags: tuple[str, ...]
) -> None:
    printed, complaints = dump(written(penstock_wrote), flags)
    assert complaints == []
    assert printed.count("Dumping ") == len(written(penstock_wrote))


def test_dump_log_reads_the_same_records_as_penstock(penstock_wrote: Path) -> None:
    logs = [path for path in written(penstock_wrote) if path.suffix == ".log"]
    printed, _complaints = dump(logs, CONTENTS)
    dumped = [
        tuple(
            int(batch[name])
            for name in ("baseOffset", "lastOffset", "count", "producerId", "size", "crc")
        )
        for batch in dumped_batches(printed)
    ]
    headers = [header for path in logs for _position, header in batches(path.read_bytes())]
    assert dumped == [
        (
            header.base_offset,
            header.last_offset,
            header.record_count,
            header.producer_id,
            header.size,
            header.crc,
        )
        for header in headers
    ]


def test_apache_kafka_serves_a_directory_that_penstock_wrote(tmp_path: Path) -> None:
    """Apache Kafka starts with Penstock's partitions in place of its own empty ones, and its
    consumer reads them."""
    node = KafkaNode(tmp_path / "kafka", {"log.retention.ms": "-1", "num.partitions": "1"})
    try:
        node.start()
        for topic in TOPICS:
            run_java(
                "org.apache.kafka.tools.TopicCommand",
                "--bootstrap-server",
                node.bootstrap,
                "--create",
                "--topic",
                topic,
            )
        node.stop()
        put_in_place(tmp_path / "penstock", node.data)
        node.start()
        seen = [
            json.loads(line)
            for line in run_java(
                "ReadTopics", node.bootstrap, classes=compile_java("ReadTopics")
            ).splitlines()
        ]
    finally:
        node.kill()
    for topic in TOPICS:
        data = b"".join(
            path.read_bytes()
            for path in sorted((tmp_path / "penstock" / f"{topic}-0").glob("*.log"))
        )
        read = [event["record"] for event in seen if event.get("record", {}).get("topic") == topic]
        assert [(record["offset"], record["timestamp"]) for record in read] == [
            (record.offset, record.timestamp) for record in read_records(data)
        ]
        if topic == "transactions":
            assert [
                record["offset"] for record in read if record["readCommitted"]
            ] == COMMITTED_OFFSETS


def put_in_place(directory: Path, data: Path) -> None:
    """Replace Kafka's partitions by Penstock's, with the topic ids that Kafka chose."""
    metadata = {
        topic: (data / f"{topic}-0" / names.PARTITION_METADATA).read_bytes() for topic in TOPICS
    }
    write_penstock_log(
        directory, {topic: parse_partition_metadata(text) for topic, text in metadata.items()}
    )
    for topic in TOPICS:
        shutil.rmtree(data / f"{topic}-0")
        shutil.copytree(directory / f"{topic}-0", data / f"{topic}-0")
