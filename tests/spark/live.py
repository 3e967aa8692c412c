"""One Spark session for all tests of this process: it takes seconds to start. It ends with the process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import penstock.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@functools.cache
def session() -> SparkSession:
    return penstock.spark.session(**{"spark.master": "local[2]", "spark.sql.shuffle.partitions": 2})
