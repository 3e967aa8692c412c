"""The Spark session that Penstock's commands use, and what any session needs of the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")


def prepare() -> None:
    """Sets what is unset: JAVA_HOME, and PYSPARK_PYTHON to this environment's Python, where format("penstock") is found. Must come before
    the session, because Java is started with it. A JAVA_HOME that Spark cannot use is replaced, and that is said."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def session(**conf: object) -> SparkSession:
    """Settings are Spark's own, `session(**{"spark.master": "local[2]"})`. Those given win over these: all cores of this machine, as many
    shuffle partitions as cores (Spark's 200 make small streams crawl), filters pushed down to the source, and quiet logs."""
    prepare()
    from pyspark.sql import SparkSession

    settings: dict[str, object] = {
        "spark.app.name": "penstock",
        "spark.master": "local[*]",
        "spark.sql.shuffle.partitions": os.cpu_count() or 2,
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()
