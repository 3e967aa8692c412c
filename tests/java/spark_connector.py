"""A Spark session with Spark's Kafka connector and ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import penstock.spark
from tests.java.kafka_jars import PEER, copy_dependencies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR_VERSION = "4.2.0"


def fetch_connector() -> list[Path]:
    libs = PEER / f"spark-connector-{CONNECTOR_VERSION}"
    return sorted(
        copy_dependencies("Spark's own Kafka connector", "spark-connector.xml", libs).glob("*.jar")
    )


def both_formats() -> SparkSession:
    """Return a session with format("penstock") and format("kafka")."""
    return penstock.spark.session(
        **{"spark.master": "local[2]", "spark.jars": ",".join(map(str, fetch_connector()))}
    )
