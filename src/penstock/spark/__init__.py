"""`format("penstock")` for Spark reads and writes topics of any Kafka-protocol cluster.

A plain script imports this module before it creates its session; the import sets JAVA_HOME and
PYSPARK_PYTHON if they are not set. `session(**conf)` returns the session that Penstock's commands
use. `foreach_batch(**options)` returns a function for `foreachBatch`, which writes in update mode.
"""

from __future__ import annotations

import os

from penstock.spark.foreach_batch import foreach_batch
from penstock.spark.session import prepare_environment, session

__all__ = ["foreach_batch", "session"]

# Spark's Python workers import this module too; they start no Java.
if not any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
    prepare_environment()
