"""Asking topics a question in SQL: `topic('orders')` is a table with the source's columns and one
for each top-level JSON field of values.

The fields and their types are those of a sample, the newest records of the topic; Spark infers the
types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from penstock.client.client import Client
from penstock.spark.background import Background
from penstock.spark.options import source_options
from penstock.spark.source.batch import read_range
from penstock.spark.source.lookup import snapshot
from penstock.spark.source.offsets import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of each topic so many of the newest records are looked at, and of their values no more than this.
SAMPLE_RECORDS = 1000
SAMPLE_BYTES = 4 * 1024 * 1024

_QUOTED = r"'(?:[^'\\]|\\.|'')*'"
_TOPIC = r"\btopic\s*\(\s*(?P<quote>['\"]?)(?P<topic>[\w.-]+)(?P=quote)\s*\)"
# What is quoted or a comment is passed over.
_WORDS = re.compile(
    rf"{_QUOTED}|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/|{_TOPIC}", re.IGNORECASE | re.DOTALL
)
# With these one topic(...) may be read twice in a plan, and Spark (4.3) narrows both reads by the
# filters of one.
_READ_TWICE = re.compile(r"\b(with|lateral)\b", re.IGNORECASE)
_NAMED_OTHERWISE = "json_"


@dataclass(frozen=True, slots=True)
class Sample:
    """Of a topic: how many records were looked at, and the values of them that are JSON objects."""

    topic: str
    records: int
    objects: tuple[str, ...]


def topics_in(text: str) -> list[str]:
    """In the order of the text, as often as they are there."""
    return [found["topic"] for found in _WORDS.finditer(text) if found["topic"]]


def sample(bootstrap_servers: str, topic: str) -> Sample:
    """Asks the cluster, without Spark."""
    options = source_options(_options(bootstrap_servers, topic), streaming=False)

    async def newest(client: Client) -> list[Range]:
        now = await snapshot(client, options, may_be_gone=False)
        each = max(SAMPLE_RECORDS // max(len(now.latest), 1), 1)
        starts = {one: max(now.earliest[one], end - each) for one, end in now.latest.items()}
        return [
            Range(topic, now.ids[topic], one.partition, starts[one], end)
            for one, end in now.latest.items()
        ]

    with Background(options.connection) as background:
        ranges = background.call(newest)
    values = (
        value
        for one in ranges
        if one.size
        for batch in read_range(options, one)
        for value in batch.column("value").to_pylist()
    )
    return sampled(topic, values)


def sampled(topic: str, values: Iterator[bytes | None]) -> Sample:
    objects: list[str] = []
    records = size = 0
    for value in islice(values, SAMPLE_RECORDS):
        records += 1
        size += len(value or b"")
        if value is not None and (text := _json_object(value)) is not None:
            objects.append(text)
        if size >= SAMPLE_BYTES:
            break
    return Sample(topic, records, tuple(objects))


def ask(
    spark: SparkSession, text: str, bootstrap_servers: str, samples: Mapping[str, Sample]
) -> DataFrame:
    """The answer, not computed yet. Each topic(...) becomes a view of its own, because filters are
    pushed down into its read."""
    pushdown = not _READ_TWICE.search(text)
    count = 0

    def view(found: re.Match[str]) -> str:
        nonlocal count
        if not found["topic"]:
            return found[0]
        count += 1
        table = topic_table(spark, bootstrap_servers, samples[found["topic"]], pushdown=pushdown)
        table.createOrReplaceTempView(f"penstock_topic_{count}")
        return f"penstock_topic_{count}"

    return spark.sql(_WORDS.sub(view, text))


def topic_table(
    spark: SparkSession, bootstrap_servers: str, seen: Sample, *, pushdown: bool
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as every Spark user writes it

    options = {
        **_options(bootstrap_servers, seen.topic),
        "includeHeaders": "true",
        "filterPushdown": str(pushdown).lower(),
    }
    rows = spark.read.format("penstock").options(**options).load()
    if not seen.objects:
        return rows
    parsed = F.from_json(F.col("value").cast("string"), _struct(spark, seen))
    with_json = rows.withColumn("_json", parsed)
    fields = with_json.select("_json.*").columns
    names = field_names(fields, rows.columns)
    return with_json.select(
        *rows.columns,
        *(F.col("_json").getField(field).alias(name) for field, name in names.items()),
    )


def field_names(fields: list[str], taken: list[str]) -> dict[str, str]:
    """What each field is called: Spark knows names without their case, and the source's columns
    come first."""
    used = {name.lower() for name in taken}
    found: dict[str, str] = {}
    for field in fields:
        name = field
        while name.lower() in used:
            name = _NAMED_OTHERWISE + name
        used.add(name.lower())
        found[field] = name
    return found


def _struct(spark: SparkSession, seen: Sample) -> str:
    """As Spark infers it from all objects at once."""
    from pyspark.sql import functions as F  # noqa: N812

    inferred = spark.range(1).select(F.schema_of_json(F.lit(f"[{','.join(seen.objects)}]"))).first()
    text = str(inferred[0]) if inferred is not None else ""
    return text.removeprefix("ARRAY<").removesuffix(">")


def _json_object(value: bytes) -> str | None:
    try:
        text = value.decode()
        return text if isinstance(json.loads(text), dict) else None
    except ValueError:
        return None


def _options(bootstrap_servers: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
