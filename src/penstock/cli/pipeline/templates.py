"""The projects that `penstock pipeline init` creates. They validate, and run once their topic
exists."""

from __future__ import annotations

from pathlib import Path

_PIPELINE = '''\
"""Writes orders to a table, large orders to a topic, and invalid records to dead letters.

    echo '{"customer": "ann", "amount": 120}' | penstock produce orders
    penstock pipeline run pipeline.py --once
    penstock consume large-orders --from-beginning --exit-at-end
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from penstock.spark.pipeline import Pipeline, parse_json

TABLE = Path(__file__).parent / "orders.parquet"


def parsed(records: DataFrame) -> DataFrame:
    """Sets `reason` for records whose value does not match the schema."""
    return parse_json(records, "customer STRING NOT NULL, amount LONG NOT NULL")


def orders(records: DataFrame) -> DataFrame:
    return records.where("reason IS NULL").select("event.*", "timestamp")


def large(orders: DataFrame) -> DataFrame:
    """Large orders as records, with the customer as key."""
    selected = orders.where("amount >= 100")
    return selected.select(F.col("customer").alias("key"), F.to_json(F.struct("*")).alias("value"))


def build(pipeline: Pipeline) -> dict[str, DataStreamWriter]:
    """The queries by name. Each has its own directory in the checkpoint directory."""
    records = parsed(pipeline.read("orders"))
    return {
        "large": pipeline.write(large(orders(records)), "large-orders"),
        "table": orders(records).writeStream.format("parquet").option("path", str(TABLE)),
        "bad": pipeline.dead_letters(records.where("reason IS NOT NULL"), "orders-dead-letters"),
    }
'''
_IGNORED = """\
.checkpoint/
*.parquet/
__pycache__/
"""
_DECLARATIVE = '''\
"""Writes orders to a table and large orders to a topic. totals.sql reads the table.

    echo '{"customer": "ann", "amount": 120}' | penstock produce orders
    penstock pipeline run .
    penstock consume large-orders --from-beginning --exit-at-end
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.spark.pipeline import parse_json

spark = SparkSession.active()
BROKERS = {"kafka.bootstrap.servers": spark.conf.get("spark.penstock.bootstrap.servers")}
# Outside of the query functions, which must not call Spark.
ORDER = StructType.fromDDL("customer STRING NOT NULL, amount LONG NOT NULL")

dp.create_sink("large_orders", "penstock", {**BROKERS, "topic": "large-orders"})


@dp.table
def orders() -> DataFrame:
    """Valid orders. parse_json sets `reason` for records that do not match the schema."""
    source = spark.readStream.format("penstock").options(**BROKERS)
    records = source.options(subscribe="orders", startingOffsets="earliest").load()
    return parse_json(records, ORDER).where("reason IS NULL").select("event.*", "timestamp")


@dp.append_flow(target="large_orders")
def to_large_orders() -> DataFrame:
    selected = spark.readStream.table("orders").where("amount >= 100")
    return selected.select(F.col("customer").alias("key"), F.to_json(F.struct("*")).alias("value"))
'''
_TOTALS = """\
CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer;
"""
# Spark requires an absolute URI as the storage of checkpoints.
_SPEC = """\
name: orders
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""
_DECLARATIVE_IGNORED = """\
.checkpoint/
spark-warehouse/
storage/
__pycache__/
"""


def write_project(directory: Path, *, declarative: bool) -> list[Path]:
    """Write the files and return their paths. FileExistsError if a file exists."""
    files = {"pipeline.py": _PIPELINE, ".gitignore": _IGNORED}
    if declarative:
        files = {
            "spark-pipeline.yml": _SPEC.format(storage=(directory.resolve() / "storage").as_uri()),
            "transformations/orders.py": _DECLARATIVE,
            "transformations/totals.sql": _TOTALS,
            ".gitignore": _DECLARATIVE_IGNORED,
        }
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(text)
    return [directory / name for name in files]
