"""Errors of readers for brokers that do not respond and for corrupt batches.

Other invalid input: test_spark_options, test_spark_batch_reader, test_spark_source and
test_spark_sink.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.errors import KafkaError
from penstock.spark.options import SourceOptions, source_options
from penstock.spark.source.batch import BatchReader, read_group
from tests.e2e.penstock_process import PenstockProcess
from tests.spark.live import create_topics, produce_numbers


def options(servers: str, **more: str) -> SourceOptions:
    return source_options(
        {"kafka.bootstrap.servers": servers, "subscribe": "orders", **more}, streaming=False
    )


def test_unresponsive_broker_is_an_error() -> None:
    patience = {"kafka.default.api.timeout.ms": "500"}
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(
            KafkaError,
            match=(
                r"responded within .*check the option kafka\.bootstrap\.servers, and that the "
                r"brokers are running"
            ),
        ),
    ):
        BatchReader(options(f"127.0.0.1:{silent.getsockname()[1]}", **patience)).partitions()


def test_corrupt_batch_on_disk_is_an_error(tmp_path: Path) -> None:
    broker = PenstockProcess(tmp_path / "node")
    try:
        broker.start()
        create_topics(broker.bootstrap, 1, "orders")
        produce_numbers(broker.bootstrap, "orders", 1, first=0, count=10)
        (segment,) = broker.directory.glob("data/**/orders-0/*.log")
        with segment.open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\xaa")
        parsed = options(broker.bootstrap)
        (partition,) = BatchReader(parsed).partitions()
        with pytest.raises(KafkaError, match=r"CORRUPT_MESSAGE: .*orders-0@\d"):
            list(read_group(parsed, partition.value))
    finally:
        broker.kill()
