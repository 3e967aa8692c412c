"""Spark's source and sink beside Spark's own Kafka connector: one session, one broker (Penstock),
one topic, in turn. And the decode kernel alone, compiled and in Python.

PENSTOCK_BENCH_QUICK=1 tries everything with little data, once, and keeps no results: for checking
the benchmark, not the source.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyspark

from bench.load import Topic
from bench.results import Section, spread
from bench.side_by_side import in_turn, ratio
from penstock.limits import BATCH_HEADER_BYTES
from penstock.records.batch import batches
from penstock.spark.kernel import compiled, pure
from penstock.spark.kernel.columns import encode
from penstock.spark.kernel.interface import Kernel, Unpacked
from penstock.spark.options import sink_options
from penstock.spark.sink.writer import write
from tests.e2e.penstock_process import PenstockProcess
from tests.java.spark_connector import CONNECTOR_VERSION, both_formats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS = 1 if QUICK else 5
READ_ROWS = 200_000 if QUICK else 5_000_000
WRITTEN_ROWS = 100_000 if QUICK else 2_000_000
KERNEL_ROWS = {
    "compiled": 100_000 if QUICK else 1_000_000,
    "pure Python": 20_000 if QUICK else 100_000,
}
PARTITIONS = 4
PIECE = 100_000
FORMATS = {"ours": "penstock", "theirs": "kafka"}
INTRO = (
    '`format("penstock")` beside Spark\'s own connector (spark-sql-kafka-0-10 '
    f"{CONNECTOR_VERSION}, the newest from Maven), in one session "
    f"of PySpark {pyspark.__version__} on local[2], reading and writing one broker of Penstock "
    "with the same settings "
    f"(read_committed, acks=all). Thousand rows/s, medians of {ROUNDS} rounds after one to warm "
    "up, in turn, and their range. "
    f"Rows are JSON of 100 bytes, {READ_ROWS:,} in {PARTITIONS} partitions to read, not "
    f"compressed; {WRITTEN_ROWS:,} to write, with keys. "
    "The broker shares the machine's cores."
)

Query = Callable[["DataFrame"], object]
QUERIES: Mapping[str, Query] = {
    "count()": lambda rows: rows.count(),
    "sum(length(value)), max(offset)": lambda rows: rows.selectExpr(
        "sum(length(value))", "max(offset)"
    ).collect(),
    "group by a field of the JSON": lambda rows: (
        rows.selectExpr("get_json_object(cast(value as string), '$.merchant') as merchant")
        .groupBy("merchant")
        .count()
        .collect()
    ),
}


def main() -> None:
    section = Section("spark", "make bench ONLY=spark", INTRO)
    section.table("what", "ours / connector", "ours", "Spark's connector", "aim")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        broker = PenstockProcess(Path(name))
        broker.start()
        spark = both_formats()
        try:
            _reads(section, spark, broker.bootstrap)
            _writes(section, spark, broker.bootstrap)
        finally:
            spark.stop()
            broker.kill()
    section.table("the decode kernel alone, one core", "thousand rows/s")
    for kernel_name, kernel in (("compiled", compiled), ("pure Python", pure)):
        section.row(
            kernel_name,
            spread([_decode_rate(kernel, KERNEL_ROWS[kernel_name]) for _ in range(ROUNDS + 1)][1:]),
        )
    if QUICK:
        print("a quick try: nothing was kept")
    else:
        section.save()


def _reads(section: Section, spark: SparkSession, servers: str) -> None:
    with Topic(servers, PARTITIONS) as topic:
        options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "kafka.compression.type": "none",
        }
        write(sink_options(options), (_payments(first) for first in range(0, READ_ROWS, PIECE)))
        for what, query in QUERIES.items():
            (rates,) = in_turn(
                FORMATS,
                ROUNDS,
                1,
                partial(_read_once, spark=spark, servers=servers, topic=topic, query=query),
            )
            _row(section, f"read: {what}", "2", rates)


def _read_once(
    form: str, *, spark: SparkSession, servers: str, topic: str, query: Query
) -> list[float]:
    source = (
        spark.read.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    rows = source.option("kafka.isolation.level", "read_committed").load()
    return [_rate(READ_ROWS, lambda: query(rows))]


def _writes(section: Section, spark: SparkSession, servers: str) -> None:
    for codec in ("none", "lz4"):
        (rates,) = in_turn(
            FORMATS, ROUNDS, 1, partial(_write_once, spark=spark, servers=servers, codec=codec)
        )
        _row(section, f"write: compression.type={codec}", "1.5", rates)


def _write_once(form: str, *, spark: SparkSession, servers: str, codec: str) -> list[float]:
    # All of 100 bytes, and cheap to make: rpad, which copies byte by byte, would take more than
    # half of what the JVM does for our sink.
    value = f"""concat('{{"n": ', id + 1000000000, ', "memo": "{71 * "-"}"}}')"""
    rows = spark.range(WRITTEN_ROWS).selectExpr("cast(id as string) as key", f"{value} as value")
    with Topic(servers, PARTITIONS) as topic:
        options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "kafka.compression.type": codec,
            "kafka.acks": "all",
        }
        return [_rate(WRITTEN_ROWS, rows.write.format(form).mode("append").options(**options).save)]


def _rate(rows: int, work: Callable[[], object]) -> float:
    """Thousand rows/s."""
    started = time.perf_counter()
    work()
    return rows / (time.perf_counter() - started) / 1000


def _row(section: Section, what: str, aim: str, rates: Mapping[str, list[float]]) -> None:
    ours, theirs = rates["ours"], rates["theirs"]
    section.row(what, f"**{ratio(ours, theirs)}**", spread(ours), spread(theirs), aim)


def _payments(first: int) -> pa.RecordBatch:
    """JSON of 100 bytes, spread over the partitions."""
    numbers = pa.array(range(first, first + PIECE))
    merchants = pc.cast(pc.bit_wise_and(numbers, 1023), pa.string())
    texts = pc.binary_join_element_wise(
        '{"merchant": "', merchants, '", "id": ', numbers.cast(pa.string()), "}", ""
    )
    partitions = pc.bit_wise_and(numbers, PARTITIONS - 1).cast(pa.int32())
    return pa.record_batch([pc.utf8_rpad(texts, 100), partitions], names=["value", "partition"])


def _decode_rate(kernel: Kernel, rows: int) -> float:
    """Of record batches in memory, as a fetch brings them."""
    encoded = (one.batch for one in encode(_payments(0), max_bytes=1_000_000, timestamp_ms=0))
    fetched = [
        Unpacked(header, memoryview(batch)[BATCH_HEADER_BYTES:])
        for batch in encoded
        for _at, header in batches(batch)
    ]
    done = 0
    started = time.perf_counter()
    while done < rows:
        done += sum(len(kernel.decode([one], 0, PIECE, headers=False).offset) for one in fetched)
    return done / (time.perf_counter() - started) / 1000
