"""The rows of docs/SPARK-OPTIONS.md are complete, have the real defaults, and name tests that
exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.client.offsets import EARLIEST, LATEST
from penstock.spark.options import SourceOptions, source_options
from penstock.spark.options.kafka import _SOURCE
from penstock.spark.options.source import SOURCE_OPTIONS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "SPARK-OPTIONS.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """Return the cells of a table by option."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


SOURCE = rows("Source")


def defaults() -> dict[str, str]:
    """Return the defaults of options that are not set, as the reference writes them."""
    servers = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    batch, stream = (source_options(servers, streaming=streaming) for streaming in (False, True))
    assert (batch.starting, stream.starting, batch.ending) == (EARLIEST, LATEST, LATEST)
    return {
        "startingOffsets": "`earliest` in batch queries, `latest` in streams",
        "startingOffsetsByTimestampStrategy": "`error`; for a duration `latest`",
        "endingOffsets": "`latest`",
        "columns": "all",
        **{name: f"`{value}`" for name, value in _single_defaults(batch).items()},
    }


def _single_defaults(options: SourceOptions) -> dict[str, object]:
    optional = {
        "minPartitions": options.min_partitions,
        "maxRecordsPerPartition": options.max_records_per_partition,
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
        "maxBytesPerTrigger": options.max_bytes_per_trigger,
        "minOffsetsPerTrigger": options.min_offsets_per_trigger,
        "groupId": options.group_id,
    }
    assert set(optional.values()) == {None}
    return {
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        "includeHeaders": str(options.include_headers).lower(),
        "maxTriggerDelay": f"{options.max_trigger_delay_s / 60:g}m",
        "filterPushdown": str(options.filter_pushdown).lower(),
        "kafka.isolation.level": options.fetch.isolation.name.lower(),
        "kafka.metadata.max.age.ms": round(options.metadata_max_age_s * 1000),
        "kafka.max.partition.fetch.bytes": options.fetch.max_bytes,
        "kafka.fetch.max.wait.ms": round(options.fetch.max_wait_s * 1000),
        "kafka.request.timeout.ms": round(options.connection.request_timeout_s * 1000),
        "kafka.default.api.timeout.ms": round(options.connection.api_timeout_s * 1000),
        "kafka.client.id": options.connection.client_id,
        "kafka.security.protocol": "PLAINTEXT",
    }


def test_reference_has_every_option_of_the_source() -> None:
    assert set(SOURCE) == {*SOURCE_OPTIONS.names, *(f"kafka.{name}" for name in _SOURCE)}
    for ignored in SOURCE_OPTIONS.ignored:
        assert f"`{ignored}`" in TEXT


@pytest.mark.parametrize("option", SOURCE)
def test_reference_has_the_default_of(option: str) -> None:
    assert SOURCE[option][0] == defaults().get(option, "")


@pytest.mark.parametrize("option", SOURCE)
def test_option_is_tested(option: str) -> None:
    assert_names_tests(SOURCE[option][-1])


def assert_names_tests(cell: str) -> None:
    """Assert that a cell of the reference names tests, and that they exist."""
    tests = set()
    for file in (ROOT / "tests" / "spark").rglob("test_*.py"):
        tests |= set(re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE))
    named = re.findall(r"`(test_\w+)`", cell)
    assert named, "no test is named"
    assert set(named) <= tests
