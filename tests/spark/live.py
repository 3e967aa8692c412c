"""The Spark session of the test process, and topics for it.

All tests share the session, since it takes seconds to start. It ends with the process.
"""

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
from penstock.spark.session import session_conf
from tests.fixtures.kafka_wrote import Partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The tests run every query a few times, and compiling it well takes longer than that: without the
# second compiler they need half of the CPU time.
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The file with the topic id of a partition.
_PARTITION_METADATA = "partition.metadata"


@functools.cache
def session() -> SparkSession:
    return penstock.spark.session(
        **{
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": 2,
            "spark.ui.enabled": False,
            _JAVA_OPTIONS: f"{session_conf()[_JAVA_OPTIONS]} {_SHORT_LIVED}",
        }
    )


def create_topics(servers: str, partitions: int, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        created.result()


def produce_numbers(servers: str, topic: str, partitions: int, first: int, count: int) -> int:
    """Produce one number per record, as text. Return the next number."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, value=str(number), partition=number % partitions)
    assert producer.flush(60) == 0
    return first + count


def transplant(data: Path, partitions: Sequence[Partition]) -> None:
    """Replace the segments of a stopped broker by those that Apache Kafka wrote."""
    for partition in partitions:
        (directory,) = data.glob(f"**/{partition.name}")
        for file in directory.iterdir():
            if file.name != _PARTITION_METADATA:
                file.unlink()
        for file in partition.directory.iterdir():
            if file.name != _PARTITION_METADATA:
                shutil.copy(file, directory)
    # All records are flushed and below the high watermark.
    _checkpoint(
        directory.parent / "recovery-point-offset-checkpoint",
        {partition: partition.log_end_offset for partition in partitions},
    )
    _checkpoint(
        directory.parent / "replication-offset-checkpoint",
        {partition: partition.log_end_offset for partition in partitions},
    )
    _checkpoint(
        directory.parent / "log-start-offset-checkpoint",
        {partition: partition.log_start_offset for partition in partitions},
    )


def _checkpoint(file: Path, offsets: Mapping[Partition, int]) -> None:
    lines = [
        f"{partition.name.topic} {partition.name.partition} {offset}\n"
        for partition, offset in offsets.items()
    ]
    file.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
