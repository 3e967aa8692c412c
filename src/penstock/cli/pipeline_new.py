"""The small projects that `penstock pipeline init` writes: pipelines that validate, and run as soon
as their topic is there."""

from __future__ import annotations

from pathlib import Path

_PIPELINE = '''\
"""Orders become a table, large ones a topic of their own, and what is no order dead letters.

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
    """Records whose value is not as it should be have a reason."""
    return parse_json(records, "customer STRING NOT NULL, amount LONG NOT NULL")


def orders(records: DataFrame) -> DataFrame:
    return records.where("reason IS NULL").select("event.*", "timestamp")


def large(orders: DataFrame) -> DataFrame:
    """As records with the customer as their key."""
    found = orders.where("amount >= 100")
    return found.select(F.col("customer").alias("key"), F.to_json(F.struct("*")).alias("value"))


def build(pipeline: Pipeline) -> dict[str, DataStreamWriter]:
    """The queries, by name. Each has its own place in the checkpoint directory."""
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
"""Orders become a table, and large ones a topic of their own. totals.sql goes on from the table.

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
# Not in a query function: Spark may not be asked anything there.
ORDER = StructType.fromDDL("customer STRING NOT NULL, amount LONG NOT NULL")

dp.create_sink("large_orders", "penstock", {**BROKERS, "topic": "large-orders"})


@dp.table
def orders() -> DataFrame:
    """Records whose value is not as it should be are left out: parse_json gives them a reason."""
    records = spark.readStream.format("penstock").options(**BROKERS, subscribe="orders", startingOffsets="earliest").load()
    return parse_json(records, ORDER).where("reason IS NULL").select("event.*", "timestamp")


@dp.append_flow(target="large_orders")
def to_large_orders() -> DataFrame:
    found = spark.readStream.table("orders").where("amount >= 100")
    return found.select(F.col("customer").alias("key"), F.to_json(F.struct("*")).alias("value"))
'''
_TOTALS = """\
CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer;
"""
# Spark takes the storage for checkpoints as an absolute URI alone.
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
    """FileExistsError where it would write over anything."""
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
