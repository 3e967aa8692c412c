"""Steps that most pipelines begin with: JSON becomes columns or a reason why not, and what is bad
becomes records for a dead-letter topic.

Pure functions from DataFrame to DataFrame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as every Spark user writes it
from pyspark.sql.types import StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The name under which Spark counts them for the query's progress.
DEAD_LETTERS = "dead letters"

_CORRUPT = "_corrupt_record"
# Of a value that cannot be read, as much is shown.
_SHOWN_CHARACTERS = 100


def parse_json(rows: DataFrame, schema: str | StructType, into: str = "event") -> DataFrame:
    """Adds the record's value, parsed, as a struct (`into`), and `reason`: why it could not be
    parsed, or null. A column of the schema that is NOT NULL must be there. In a query function of a
    declarative pipeline, where Spark may not be asked, the schema must be a StructType:
    `StructType.fromDDL(...)` outside of it gives one."""
    asked = _struct(schema)
    fields = [StructField(one.name, one.dataType) for one in asked.fields]
    reading = StructType([*fields, StructField(_CORRUPT, StringType())])
    text = F.col("value").cast("string")
    read = rows.withColumn(
        into,
        F.from_json(text, reading, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}),
    )
    reasons = [
        _unless_object(text, into),
        *(_unless_readable(text, into, one) for one in asked.fields),
    ]
    unknown = F.when(
        F.col(f"{into}.{_CORRUPT}").isNotNull(), F.lit("the value cannot be read with the schema")
    )
    return read.withColumn("reason", F.coalesce(*reasons, unknown)).withColumn(
        into, F.col(into).dropFields(_CORRUPT)
    )


def dead_letter_rows(rows: DataFrame) -> DataFrame:
    """Key and value as they were; headers that were there come first. They are counted."""
    said = F.array(*(_header(column) for column in ("reason", "topic", "partition", "offset")))
    headers = (
        F.concat(F.coalesce(F.col("headers"), F.filter(said, lambda _one: F.lit(False))), said)
        if "headers" in rows.columns
        else said
    )
    return rows.select("key", "value", headers.alias("headers")).observe(
        DEAD_LETTERS, F.count(F.lit(1)).alias("rows")
    )


def _struct(schema: str | StructType) -> StructType:
    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(found, StructType):
        raise TypeError(
            f"{schema!r} is no list of columns: one like 'id STRING NOT NULL, amount LONG' is "
            "expected"
        )
    return found


def _header(column: str) -> Column:
    """Readable, also where a reason shows a part of a value that is no text."""
    return F.struct(
        F.lit(column).alias("key"),
        F.make_valid_utf8(F.col(column).cast("string")).cast("binary").alias("value"),
    )


def _shown(text: Column) -> Column:
    """Made valid first: where text ends in a part of a character, Spark's substring (4.3) takes
    what is behind it in memory too."""
    return F.substring(F.make_valid_utf8(text), 1, _SHOWN_CHARACTERS)


def _unless_object(text: Column, into: str) -> Column:
    """A value that is null, empty or blank (Spark makes null of these), no JSON, or JSON of another
    shape."""
    is_object = F.json_object_keys(text).isNotNull()
    return (
        F.when(text.isNull(), F.lit("the value is null"))
        .when(F.col(into).isNull(), F.lit("the value is empty"))
        .when(
            F.col(f"{into}.{_CORRUPT}").isNotNull() & ~is_object,
            F.concat(F.lit("the value is no JSON object: "), _shown(text)),
        )
    )


def _unless_readable(text: Column, into: str, field: StructField) -> Column:
    name, missing = field.name, F.col(f"{into}.{field.name}").isNull()
    given = F.get_json_object(text, f"$['{name}']")
    wrong = F.concat(
        F.lit(f"column {name} cannot be read as {field.dataType.simpleString()}: "), _shown(given)
    )
    found = F.when(missing & given.isNotNull(), wrong)
    return found if field.nullable else found.when(missing, F.lit(f"column {name} is missing"))
