"""Micro-batches of Penstock's exactly-once sink beside its at-least-once sink, Spark's own
connector, and an empty source and sink in Python.

Times are Spark's own: triggerExecution of the query's progress, from the source's offsets to the
commit of the micro-batch.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from bench.empty_stream import FORMAT as EMPTY
from bench.empty_stream import EmptyDataSource
from bench.load import Topic
from bench.results import Section, median, spread
from bench.side_by_side import in_turn, ratio
from penstock.spark.options import sink_options
from penstock.spark.sink.writer import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 4
ROWS_PER_TRIGGER = 10
WARM_UP_TRIGGERS = 5
WATERMARK_TIMEOUT_S = 30.0
POLL_S = 0.1
MAX_ABOVE_MS = 25
ONCE, AT_LEAST, CONNECTOR = "exactly once", "at least once", "Spark's connector"


@dataclass(frozen=True)
class Stream:
    """The format of a query's sink, and of its source where the latency is measured."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)


SINKS = {
    ONCE: Stream("penstock"),
    AT_LEAST: Stream("penstock", {"delivery": "at-least-once"}),
    CONNECTOR: Stream("kafka"),
}
EMPTY_STREAM = "empty source and sink in Python"


@dataclass(frozen=True)
class Streams:
    """Runs the queries, each with a checkpoint of its own in `directory`."""

    spark: SparkSession
    servers: str
    directory: Path
    rounds: int

    def throughput(self, section: Section, rows: int) -> None:
        """Write one micro-batch with each sink, from Spark's own source of numbers."""
        section.table(
            f"stream: a micro-batch of {rows:,} rows, thousand rows/s",
            "exactly once / connector",
            ONCE,
            AT_LEAST,
            CONNECTOR,
            "aim",
        )
        for codec in ("none", "lz4"):
            (rates,) = in_turn(
                SINKS, self.rounds, 1, partial(self._written_rate, rows=rows, codec=codec)
            )
            section.row(
                f"compression.type={codec}",
                f"**{ratio(rates[ONCE], rates[CONNECTOR])}**",
                *(spread(rates[sink]) for sink in SINKS),
                "1.5",
            )

    def _written_rate(self, sink: Stream, *, rows: int, codec: str) -> list[float]:
        """Return thousand rows/s of one micro-batch."""
        numbers = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        written = numbers.load().selectExpr(
            "cast(value as string) as key", json_of_100_bytes("value")
        )
        with Topic(self.servers, PARTITIONS) as topic, self._checkpoint() as checkpoint:
            query = self._start(
                written, sink, topic, checkpoint, {"kafka.compression.type": codec}, once=True
            )
            query.awaitTermination()
            (progress,) = (each for each in query.recentProgress if each["numInputRows"])
            if progress["numInputRows"] != rows or self._records(topic) < rows:
                raise SystemExit(f"the micro-batch of {sink} did not write its {rows:,} rows")
        return [rows / _duration_ms(progress)]

    def _records(self, topic: str) -> int:
        """Return the end offsets together. They count transaction markers too."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "bench"})
        try:
            return sum(
                consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=WATERMARK_TIMEOUT_S
                )[1]
                for partition in range(PARTITIONS)
            )
        finally:
            consumer.close()

    def latency(self, section: Section, triggers: int) -> None:
        """Read and write micro-batches of a few rows, one after the other."""
        section.table(
            f"stream: a micro-batch of {ROWS_PER_TRIGGER} rows, from a topic to a topic",
            "ms",
            "above the empty ones, ms",
            "aim",
        )
        self.spark.dataSource.register(EmptyDataSource)
        total = WARM_UP_TRIGGERS + triggers
        with Topic(self.servers, 1) as topic:
            rows = total * ROWS_PER_TRIGGER
            write(
                sink_options({"kafka.bootstrap.servers": self.servers, "topic": topic}),
                iter([pa.record_batch([pa.array(["value"] * rows)], names=["value"])]),
            )
            (times,) = in_turn(
                {EMPTY_STREAM: Stream(EMPTY), **SINKS},
                self.rounds,
                1,
                partial(self._median_ms, source_topic=topic, triggers=total),
            )
        least = median(times[EMPTY_STREAM])
        section.row(EMPTY_STREAM, spread(times[EMPTY_STREAM]), "", "")
        for sink in SINKS:
            aim = "" if sink == CONNECTOR else f"at most {MAX_ABOVE_MS}"
            above = f"**{median(times[sink]) - least:+.0f}**"
            section.row(sink, spread(times[sink]), above, aim)

    def _median_ms(self, stream: Stream, *, source_topic: str, triggers: int) -> list[float]:
        """Return the median time of the micro-batches after the first few."""
        options: dict[str, Any] = (
            {"rows": ROWS_PER_TRIGGER, "triggers": triggers}
            if stream.format == EMPTY
            else {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": source_topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": ROWS_PER_TRIGGER,
            }
        )
        rows = self.spark.readStream.format(stream.format).options(**options).load()
        with Topic(self.servers, 1) as topic, self._checkpoint() as checkpoint:
            query = self._start(rows.select("key", "value"), stream, topic, checkpoint, {})
            try:
                _wait_for(query, triggers)
                progress = [each for each in query.recentProgress if each["numInputRows"]]
            finally:
                query.stop()
        if [each["numInputRows"] for each in progress] != [ROWS_PER_TRIGGER] * triggers:
            raise SystemExit(f"the micro-batches of {stream} did not have the rows asked for")
        return [median([_duration_ms(each) for each in progress[WARM_UP_TRIGGERS:]])]

    def _start(
        self,
        rows: DataFrame,
        sink: Stream,
        topic: str,
        checkpoint: str,
        options: Mapping[str, str],
        *,
        once: bool = False,
    ) -> StreamingQuery:
        writer = rows.writeStream.format(sink.format).option("checkpointLocation", checkpoint)
        if sink.format != EMPTY:
            writer = writer.options(
                **{"kafka.bootstrap.servers": self.servers, "topic": topic, "kafka.acks": "all"},
                **options,
                **sink.options,
            )
        return (writer.trigger(availableNow=True) if once else writer).start()

    def _checkpoint(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(dir=self.directory, prefix="checkpoint-")


def json_of_100_bytes(number: str) -> str:
    """Return an SQL expression that is cheap to evaluate: rpad copies byte by byte and would take
    more than half of the JVM's time for our sink."""
    return f"""concat('{{"n": ', {number} + 1000000000, ', "memo": "{71 * "-"}"}}') as value"""


def _wait_for(query: StreamingQuery, triggers: int) -> None:
    """Wait until the query has executed its micro-batches. Its source has no more rows then."""
    while (query.lastProgress or {"batchId": -1})["batchId"] < triggers - 1:
        if not query.isActive:
            raise SystemExit(f"the query ended early: {query.exception()}")
        time.sleep(POLL_S)


def _duration_ms(progress: Mapping[str, Any]) -> float:
    return float(progress["durationMs"]["triggerExecution"])
