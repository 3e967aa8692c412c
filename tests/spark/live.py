"""One Spark session for all tests of this process: it takes seconds to start. It ends with the
process. And topics for it."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import penstock.spark
from tests.fixtures.kafka_wrote import Partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The file that says which topic a partition is of.
_IDENTITY = "partition.metadata"


@functools.cache
def session() -> SparkSession:
    return penstock.spark.session(**{"spark.master": "local[2]", "spark.sql.shuffle.partitions": 2})


def create_topics(servers: str, partitions: int, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        created.result()


def produce_numbers(servers: str, topic: str, partitions: int, first: int, count: int) -> int:
    """One number a record, as text. Gives the next one."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, value=str(number), partition=number % partitions)
    assert producer.flush(60) == 0
    return first + count


def transplant(data: Path, partitions: Sequence[Partition]) -> None:
    """Puts the segments that Apache Kafka wrote into a stopped broker's directory, in the place of
    those of its own topics."""
    for one in partitions:
        (own,) = data.glob(f"**/{one.name}")
        for file in own.iterdir():
            if file.name != _IDENTITY:
                file.unlink()
        for file in one.directory.iterdir():
            if file.name != _IDENTITY:
                shutil.copy(file, own)
    # All of it is on disk, and below the watermark.
    _checkpoint(
        own.parent / "recovery-point-offset-checkpoint",
        {one: one.log_end_offset for one in partitions},
    )
    _checkpoint(
        own.parent / "replication-offset-checkpoint",
        {one: one.log_end_offset for one in partitions},
    )
    _checkpoint(
        own.parent / "log-start-offset-checkpoint",
        {one: one.log_start_offset for one in partitions},
    )


def _checkpoint(file: Path, offsets: Mapping[Partition, int]) -> None:
    lines = [f"{one.name.topic} {one.name.partition} {offset}\n" for one, offset in offsets.items()]
    file.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
