"""`format("penstock")` for Spark reads and writes topics of any Kafka-protocol cluster.

A plain script imports this module before it creates its session; the import sets JAVA_HOME and
PYSPARK_PYTHON if they are not set. `session(**conf)` returns the session that Penstock's commands
use.
"""

from __future__ import annotations

import os

from penstock.spark.session import prepare_environment, session

__all__ = ["session"]

# Spark's Python workers import this module too; they start no Java.
if not any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
    prepare_environment()
