"""SQL over topics, with `topic('orders')` as a table.

The table has the columns of the source and one column per top-level JSON field of the values.
The fields and their types come from a sample, the newest records of the topic; Spark infers the
types.

`check_with_parser` needs Java but no Spark session, which takes several times as long to start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException

from penstock.client.client import Client
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.errors import spark_reason
from penstock.spark.options import broker_options, source_options
from penstock.spark.options.source import FILTERED_READ_ONCE
from penstock.spark.source.batch import read_range
from penstock.spark.source.offset_reader import read_snapshot
from penstock.spark.source.ranges import OffsetRange
from penstock.spark.sql_text import SqlTextError, replace_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The sample of a topic ends after this many records or bytes of values.
SAMPLE_RECORDS = 1000
SAMPLE_BYTES = 4 * 1024 * 1024

# With these a plan may read one topic(...) twice, and Spark 4.3 applies the filters of one read to
# both. Of a correlated subquery, Spark repeats the outer query.
_READ_TWICE = re.compile(
    r"\b(with|lateral)\b|\bselect\b.*\bselect\b|\(\s*(from|table|values)\b",
    re.IGNORECASE | re.DOTALL,
)
_COLLISION_PREFIX = "json_"
# Spark settings with which its own parser or an empty catalog may not be what the session has.
_OTHER_PARSER = ("spark.sql.extensions",)
_OTHER_CATALOG = (
    "spark.sql.catalogImplementation",
    "spark.sql.catalog.spark_catalog",
    "spark.sql.defaultCatalog",
)
_PARSER_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")
_RELATION = re.compile(r"'UnresolvedRelation \[([^\],]+)\]")
_ALIAS = re.compile(r"'?SubqueryAlias (\S+)")


@dataclass(frozen=True, slots=True)
class TopicSample:
    """The number of sampled records, and the values among them that are JSON objects."""

    topic: str
    records: int
    objects: tuple[str, ...]


def check_with_parser(jvm: Any, text: str) -> None:
    """Parse a query with Spark's parser in a Java process without a Spark session. SqlTextError if
    it is no SQL, or reads a table that cannot exist."""
    conf = jvm.org.apache.spark.SparkConf()
    if any(conf.contains(name) for name in _OTHER_PARSER):
        return
    views: list[str] = []
    query = replace_topics(text, lambda view, _topic: views.append(view))
    try:
        plan = jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(query)
    except PySparkException as error:  # with a session, PySpark converts exceptions of Java
        raise SqlTextError(_parser_reason(str(error))) from error
    except Py4JJavaError as error:
        raise SqlTextError(_parser_reason(str(error.java_exception.getMessage()))) from error
    if any(conf.contains(name) for name in _OTHER_CATALOG):
        return
    tree = plan.toString()
    known = {*views, *_ALIAS.findall(tree)}
    for table in _RELATION.findall(tree):
        if table not in known:
            raise SqlTextError(f"there is no table {table}: write topic('{table}') for a topic")


def _parser_reason(message: str) -> str:
    position = _PARSER_POSITION.search(message)
    if position is None:
        return spark_reason(message)
    return f"{spark_reason(message)} at line {position[1]}, column {int(position[2]) + 1}"


def sample_topic(bootstrap_servers: str, topic: str) -> TopicSample:
    """Read the newest records of a topic, without Spark."""
    options = source_options(_options(bootstrap_servers, topic), streaming=False)

    async def newest(client: Client) -> list[OffsetRange]:
        snapshot = await read_snapshot(client, options, allow_missing=False)
        per_partition = max(SAMPLE_RECORDS // max(len(snapshot.latest), 1), 1)
        return [
            OffsetRange(
                topic,
                snapshot.topic_ids[topic],
                partition.partition,
                max(snapshot.earliest[partition], latest - per_partition),
                latest,
            )
            for partition, latest in snapshot.latest.items()
        ]

    with BlockingClient(options.connection) as blocking:
        ranges = blocking.call(newest)
    values = (
        value
        for offset_range in ranges
        if offset_range.size
        for batch in read_range(options, offset_range)
        for value in batch.column("value").to_pylist()
    )
    return sample_values(topic, values)


def sample_values(topic: str, values: Iterator[bytes | None]) -> TopicSample:
    objects: list[str] = []
    records = size = 0
    for value in islice(values, SAMPLE_RECORDS):
        records += 1
        size += len(value or b"")
        if value is not None and (text := _json_object(value)) is not None:
            objects.append(text)
        if size >= SAMPLE_BYTES:
            break
    return TopicSample(topic, records, tuple(objects))


def query_topics(
    spark: SparkSession, text: str, bootstrap_servers: str, samples: Mapping[str, TopicSample]
) -> DataFrame:
    """Return the result of a query as a DataFrame, not computed yet. Each topic(...) becomes its
    own view, because filters are pushed down into its read."""
    pushdown = not _READ_TWICE.search(text)

    def create_view(view: str, topic: str) -> None:
        table = topic_table(spark, bootstrap_servers, samples[topic], pushdown=pushdown)
        table.createOrReplaceTempView(view)

    return spark.sql(replace_topics(text, create_view))


def topic_table(
    spark: SparkSession, bootstrap_servers: str, sample: TopicSample, *, pushdown: bool
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as every Spark user writes it

    options = {
        **_options(bootstrap_servers, sample.topic),
        "includeHeaders": "true",
        "filterPushdown": FILTERED_READ_ONCE if pushdown else "false",
    }
    rows = spark.read.format("penstock").options(**options).load()
    if not sample.objects:
        return rows
    parsed = F.from_json(F.col("value").cast("string"), _infer_struct(spark, sample))
    with_json = rows.withColumn("_json", parsed)
    fields = with_json.select("_json.*").columns
    names = field_names(fields, rows.columns)
    return with_json.select(
        *rows.columns,
        *(F.col("_json").getField(field).alias(name) for field, name in names.items()),
    )


def field_names(fields: list[str], taken: list[str]) -> dict[str, str]:
    """Return the column name of each field. A field gets a prefix if its name is taken by a column
    of the source or by another field; Spark ignores case."""
    used = {name.lower() for name in taken}
    names: dict[str, str] = {}
    for field in fields:
        name = field
        while name.lower() in used:
            name = _COLLISION_PREFIX + name
        used.add(name.lower())
        names[field] = name
    return names


def _infer_struct(spark: SparkSession, sample: TopicSample) -> str:
    """Let Spark infer one schema from all sampled objects."""
    from pyspark.sql import functions as F  # noqa: N812

    array = F.lit(f"[{','.join(sample.objects)}]")
    inferred = spark.range(1).select(F.schema_of_json(array)).first()
    text = str(inferred[0]) if inferred is not None else ""
    return text.removeprefix("ARRAY<").removesuffix(">")


def _json_object(value: bytes) -> str | None:
    try:
        text = value.decode()
        return text if isinstance(json.loads(text), dict) else None
    except ValueError:
        return None


def _options(bootstrap_servers: str, topic: str) -> dict[str, str]:
    return {**broker_options(bootstrap_servers), "subscribe": topic}
