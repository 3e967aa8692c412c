"""Steps that parse JSON values and turn bad records into dead letters.

Pure functions from DataFrame to DataFrame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as every Spark user writes it
from pyspark.sql.types import StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The observed metric in the query's progress that counts dead letters.
DEAD_LETTERS = "dead letters"

_CORRUPT = "_corrupt_record"
# A reason quotes at most this much of the value.
_MAX_QUOTED_CHARACTERS = 100


def parse_json(rows: DataFrame, schema: str | StructType, into: str = "event") -> DataFrame:
    """Add the parsed value as a struct column `into`, and a column `reason`: why the value could
    not be parsed, or null.

    Columns that are NOT NULL in the schema are required. In a query function of a declarative
    pipeline, where Spark must not be called, the schema must be a StructType; create it outside of
    the function with `StructType.fromDDL(...)`.
    """
    struct = _struct(schema)
    fields = [StructField(field.name, field.dataType) for field in struct.fields]
    permissive = StructType([*fields, StructField(_CORRUPT, StringType())])
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    # With a plain projection the optimizer copies from_json to every use of a field, which parses
    # each value some twenty times. It does not copy what a generator makes; `stack` makes one row.
    once = F.stack(F.lit(1), F.from_json(text, permissive, options)).alias(into)
    parsed = rows.drop(into).select("*", once)
    reasons = [
        _not_an_object(text, into),
        *(_invalid_field(text, into, field) for field in struct.fields),
    ]
    other = F.when(
        F.col(f"{into}.{_CORRUPT}").isNotNull(), F.lit("the value does not match the schema")
    )
    return parsed.withColumn("reason", F.coalesce(*reasons, other)).withColumn(
        into, F.col(into).dropFields(_CORRUPT)
    )


def dead_letter_rows(rows: DataFrame) -> DataFrame:
    """Return key, value and headers of dead letters. The original headers come first. The query's
    progress counts the rows."""
    added = F.array(*(_header(column) for column in ("reason", "topic", "partition", "offset")))
    headers = (
        F.concat(F.coalesce(F.col("headers"), F.filter(added, lambda _header: F.lit(False))), added)
        if "headers" in rows.columns
        else added
    )
    return rows.select("key", "value", headers.alias("headers")).observe(
        DEAD_LETTERS, F.count(F.lit(1)).alias("rows")
    )


def _struct(schema: str | StructType) -> StructType:
    struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise TypeError(
            f"{schema!r} is not a list of columns: use a schema such as 'id STRING NOT NULL, "
            "amount LONG'"
        )
    return struct


def _header(column: str) -> Column:
    """Make the header valid UTF-8: a reason may quote a part of a binary value."""
    return F.struct(
        F.lit(column).alias("key"),
        F.make_valid_utf8(F.col(column).cast("string")).cast("binary").alias("value"),
    )


def _quoted(text: Column) -> Column:
    """Shorten a value. It is made valid UTF-8 first, because substring of Spark 4.3 reads past the
    end of a string that ends within a character."""
    return F.substring(F.make_valid_utf8(text), 1, _MAX_QUOTED_CHARACTERS)


def _not_an_object(text: Column, into: str) -> Column:
    """Return the reason for a value that is null, empty or blank (which Spark parses as null), or
    not a JSON object."""
    is_object = F.json_object_keys(text).isNotNull()
    return (
        F.when(text.isNull(), F.lit("the value is null"))
        .when(F.col(into).isNull(), F.lit("the value is empty"))
        .when(
            F.col(f"{into}.{_CORRUPT}").isNotNull() & ~is_object,
            F.concat(F.lit("the value is not a JSON object: "), _quoted(text)),
        )
    )


def _invalid_field(text: Column, into: str, field: StructField) -> Column:
    name, missing = field.name, F.col(f"{into}.{field.name}").isNull()
    value = F.get_json_object(text, f"$['{name}']")
    invalid = F.concat(
        F.lit(f"column {name} is not of type {field.dataType.simpleString()}: "), _quoted(value)
    )
    reason = F.when(missing & value.isNotNull(), invalid)
    return reason if field.nullable else reason.when(missing, F.lit(f"column {name} is missing"))
