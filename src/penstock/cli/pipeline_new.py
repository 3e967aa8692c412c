"""The small project that `penstock pipeline init` writes: a pipeline that validates, and runs as soon as its topic is there."""

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


def write_project(directory: Path) -> list[Path]:
    """FileExistsError where it would write over anything."""
    files = {directory / "pipeline.py": _PIPELINE, directory / ".gitignore": _IGNORED}
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        with path.open("x") as file:
            file.write(text)
    return list(files)
