"""Penstock's source and sink beside Spark's own Kafka connector: one session, one Penstock broker,
one topic, in alternation. Also the decode kernel alone, in C and in Python.

PENSTOCK_BENCH_QUICK=1 runs everything once with little data, to check the benchmark itself.
PENSTOCK_BENCH_PARTS="reads latency" runs some parts only. Neither saves results.
PENSTOCK_BENCH_ROUNDS=N sets the number of rounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyspark

from bench.load import Topic
from bench.results import Section, spread
from bench.side_by_side import in_turn, ratio
from bench.spark_streams import PARTITIONS, WARM_UP_TRIGGERS, Streams, json_of_100_bytes
from bench.workdir import working_directory
from penstock.limits import BATCH_HEADER_BYTES
from penstock.records.batch import batches
from penstock.spark.kernel import compiled, pure
from penstock.spark.kernel.columns import encode
from penstock.spark.kernel.interface import DecompressedBatch, Kernel
from penstock.spark.options import sink_options
from penstock.spark.sink.writer import write
from tests.e2e.penstock_process import PenstockProcess
from tests.java.spark_connector import CONNECTOR_VERSION, both_formats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS = int(os.environ.get("PENSTOCK_BENCH_ROUNDS", "1" if QUICK else "5"))
PARTS = ("reads", "writes", "streams", "latency", "kernel")
READ_ROWS = 200_000 if QUICK else 5_000_000
WRITTEN_ROWS = 100_000 if QUICK else 2_000_000
KERNEL_ROWS = {
    "compiled": 100_000 if QUICK else 1_000_000,
    "pure Python": 20_000 if QUICK else 100_000,
}
TRIGGERS = 5 if QUICK else 20
PIECE = 100_000
FORMATS = {"ours": "penstock", "theirs": "kafka"}
INTRO = (
    '`format("penstock")` beside Spark\'s own connector (spark-sql-kafka-0-10 '
    f"{CONNECTOR_VERSION}, the newest from Maven), in one session of PySpark "
    f"{pyspark.__version__} on local[2], with one Penstock broker and the same settings "
    "(read_committed, acks=all). Thousand rows/s, median and range of "
    f"{ROUNDS} rounds in alternation after one warm-up round. Rows are JSON of 100 bytes: "
    f"{READ_ROWS:,} rows in {PARTITIONS} partitions to read, uncompressed; {WRITTEN_ROWS:,} rows "
    "with keys to write. The broker shares the machine's cores. Spark's connector is at least "
    "once. Streams are measured by Spark's triggerExecution. A large micro-batch is the only one "
    f"of its query. Of {WARM_UP_TRIGGERS + TRIGGERS} small ones in a query the first "
    f"{WARM_UP_TRIGGERS} are left out, and the median of the others is the value of the round."
)

Query = Callable[["DataFrame"], object]


def _group(merchant: str) -> Query:
    return lambda rows: (
        rows.selectExpr(f"{merchant} as merchant").groupBy("merchant").count().collect()
    )


_JSON_FIELD = _group("get_json_object(cast(value as string), '$.merchant')")


@dataclass(frozen=True)
class Reading:
    """A query of both sources and the ratio to aim for. `ours` has the options of our source that
    the connector does not have, and the query of its columns."""

    query: Query
    aim: str
    ours: tuple[Mapping[str, str], Query] | None = None


READINGS = {
    "count()": Reading(lambda rows: rows.count(), "3.6"),
    "sum(length(value)), max(offset)": Reading(
        lambda rows: rows.selectExpr("sum(length(value))", "max(offset)").collect(), "3.6"
    ),
    "group by a field of the JSON": Reading(_JSON_FIELD, "2.5"),
    "the same, ours with the option jsonFields": Reading(
        _JSON_FIELD,
        "2.5",
        ({"jsonFields": "merchant STRING", "columns": "json"}, _group("json.merchant")),
    ),
}


def main() -> None:
    parts = os.environ.get("PENSTOCK_BENCH_PARTS", " ".join(PARTS)).split()
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"PENSTOCK_BENCH_PARTS names {unknown}: give some of {', '.join(PARTS)}")
    section = Section("spark", "make bench ONLY=spark", INTRO)
    if set(parts) != {"kernel"}:
        _spark(section, parts)
    if "kernel" in parts:
        _kernels(section)
    if QUICK or set(parts) != set(PARTS):
        print("not a whole run: no results were saved")
    else:
        section.save()


def _spark(section: Section, parts: Collection[str]) -> None:
    with working_directory() as directory:
        os.environ["SPARK_LOCAL_DIRS"] = str(directory / "spark")
        broker = PenstockProcess(directory / "broker")
        broker.start()
        spark = both_formats()
        streams = Streams(spark, broker.bootstrap, directory, ROUNDS)
        try:
            if "reads" in parts or "writes" in parts:
                section.table("what", "ours / connector", "ours", "Spark's connector", "aim")
            if "reads" in parts:
                _reads(section, spark, broker.bootstrap)
            if "writes" in parts:
                _writes(section, spark, broker.bootstrap)
            if "streams" in parts:
                streams.throughput(section, WRITTEN_ROWS)
            if "latency" in parts:
                streams.latency(section, TRIGGERS)
        finally:
            spark.stop()
            broker.kill()


def _kernels(section: Section) -> None:
    section.table("the decode kernel alone, one core", "thousand rows/s")
    for name, kernel in (("compiled", compiled), ("pure Python", pure)):
        rates = [_decode_rate(kernel, KERNEL_ROWS[name]) for _ in range(ROUNDS + 1)]
        section.row(name, spread(rates[1:]))


def _reads(section: Section, spark: SparkSession, servers: str) -> None:
    with Topic(servers, PARTITIONS) as topic:
        options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "kafka.compression.type": "none",
        }
        write(sink_options(options), (_payments(first) for first in range(0, READ_ROWS, PIECE)))
        for what, reading in READINGS.items():
            (rates,) = in_turn(
                FORMATS,
                ROUNDS,
                1,
                partial(_read_once, spark=spark, servers=servers, topic=topic, reading=reading),
            )
            _row(section, f"read: {what}", reading.aim, rates)


def _read_once(
    form: str, *, spark: SparkSession, servers: str, topic: str, reading: Reading
) -> list[float]:
    options, query = (
        reading.ours
        if reading.ours is not None and form == FORMATS["ours"]
        else ({}, reading.query)
    )
    source = (
        spark.read.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .options(**options)
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
    rows = spark.range(WRITTEN_ROWS).selectExpr(
        "cast(id as string) as key", json_of_100_bytes("id")
    )
    with Topic(servers, PARTITIONS) as topic:
        options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "kafka.compression.type": codec,
            "kafka.acks": "all",
        }
        return [_rate(WRITTEN_ROWS, rows.write.format(form).mode("append").options(**options).save)]


def _rate(rows: int, work: Callable[[], object]) -> float:
    """Return thousand rows/s."""
    started = time.perf_counter()
    work()
    return rows / (time.perf_counter() - started) / 1000


def _row(section: Section, what: str, aim: str, rates: Mapping[str, list[float]]) -> None:
    ours, theirs = rates["ours"], rates["theirs"]
    section.row(what, f"**{ratio(ours, theirs)}**", spread(ours), spread(theirs), aim)


def _payments(first: int) -> pa.RecordBatch:
    """Return rows of 100 bytes of JSON, spread over the partitions."""
    numbers = pa.array(range(first, first + PIECE))
    merchants = pc.cast(pc.bit_wise_and(numbers, 1023), pa.string())
    texts = pc.binary_join_element_wise(
        '{"merchant": "', merchants, '", "id": ', numbers.cast(pa.string()), "}", ""
    )
    partitions = pc.bit_wise_and(numbers, PARTITIONS - 1).cast(pa.int32())
    return pa.record_batch([pc.utf8_rpad(texts, 100), partitions], names=["value", "partition"])


def _decode_rate(kernel: Kernel, rows: int) -> float:
    """Decode record batches in memory, as a Fetch returns them. Return thousand rows/s."""
    encoded = (result.batch for result in encode(_payments(0), max_bytes=1_000_000, timestamp_ms=0))
    fetched = [
        DecompressedBatch(header, memoryview(batch)[BATCH_HEADER_BYTES:])
        for batch in encoded
        for _at, header in batches(batch)
    ]
    done = 0
    started = time.perf_counter()
    while done < rows:
        done += sum(
            len(kernel.decode([batch], 0, PIECE, headers=False).offset) for batch in fetched
        )
    return done / (time.perf_counter() - started) / 1000
