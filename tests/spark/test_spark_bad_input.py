"""What a reader says of brokers that do not answer, and of what was damaged on a broker's disk. The
rest of bad input: test_spark_options, test_spark_plans, test_spark_source and test_spark_sink."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from penstock.errors import KafkaError
from penstock.spark.options import SourceOptions, source_options
from penstock.spark.source.batch import BatchReader, read_range
from tests.e2e.penstock_process import PenstockProcess
from tests.spark.live import create_topics, produce_numbers

SECONDS = 20


def options(servers: str) -> SourceOptions:
    return source_options(
        {"kafka.bootstrap.servers": servers, "subscribe": "orders"}, streaming=False
    )


def test_a_port_where_nobody_ever_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(
            KafkaError,
            match=(
                r"responded within .*check the option kafka\.bootstrap\.servers, and that the "
                r"brokers are running"
            ),
        ):
            BatchReader(options(f"127.0.0.1:{silent.getsockname()[1]}")).partitions()
    assert time.monotonic() - started < SECONDS


def test_a_batch_that_was_damaged_on_disk(tmp_path: Path) -> None:
    broker = PenstockProcess(tmp_path / "node")
    try:
        broker.start()
        create_topics(broker.bootstrap, 1, "orders")
        produce_numbers(broker.bootstrap, "orders", 1, first=0, count=10)
        (segment,) = broker.directory.glob("data/**/orders-0/*.log")
        with segment.open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\xaa")
        given = options(broker.bootstrap)
        (task,) = BatchReader(given).partitions()
        with pytest.raises(KafkaError, match=r"CORRUPT_MESSAGE: .*orders-0@\d"):
            list(read_range(given, task.value))
    finally:
        broker.kill()
