"""Penstock for Spark: `format("penstock")` reads and writes topics of any Kafka-protocol cluster.

A plain script imports this module before it creates its session; the import sets JAVA_HOME and
PYSPARK_PYTHON if they are not set. `session(**conf)` returns the session that Penstock's commands
use.

datasource.py       the DataSource that Spark calls
options/            every option of the source and the sink
source/ sink/       readers and writers
kernel/             record batches to Arrow columns and back
pipeline/           pipeline applications: penstock pipeline run
sql.py              penstock sql
errors.py           the reason in Spark's error messages
session.py          the Spark session
launchers.py        the Java and the Python that Spark starts
shipping.py         this environment for the workers of a Spark cluster
blocking_client.py  a cluster client for synchronous code
"""

from __future__ import annotations

import os

from penstock.spark.session import prepare_environment, session

__all__ = ["session"]

# Spark's Python workers import this module too; they start no Java.
if not any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
    prepare_environment()
