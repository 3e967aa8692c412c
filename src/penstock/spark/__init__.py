"""Spark for Penstock: `format("penstock")` reads and writes topics of any Kafka-protocol cluster.

Importing this before the session is made is all that a plain script needs: it sets JAVA_HOME and
PYSPARK_PYTHON where they are unset. `session(**conf)` gives the session that Penstock's commands
use.
"""

from __future__ import annotations

import os

from penstock.spark.session import prepare, session

__all__ = ["session"]

# Spark's own Python workers import this too, and start no Java.
if not any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
    prepare()
