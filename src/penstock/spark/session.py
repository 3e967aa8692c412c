"""The Spark session of Penstock's commands, and the environment that any session needs."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import spark_reason
from penstock.spark.launchers import environment_python, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG4J_CONFIGURATION = Path(__file__).with_name("log4j2.properties")

_LOG_LINES_IN_ERROR = 3


class SessionError(RuntimeError):
    """Spark did not start. The message has the reason and the last lines of Spark's log."""


def prepare_environment() -> None:
    """Set JAVA_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON if they are not set.

    Call it before the session is created, which starts Java. PYSPARK_PYTHON is this environment's
    Python, which finds format("penstock"). A JAVA_HOME that Spark cannot use is replaced with a
    warning.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    python = str(environment_python())
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)


def session_conf(**conf: object) -> dict[str, str]:
    """Return Spark's configuration with Penstock's defaults: all cores of this machine, one shuffle
    partition per core (Spark's default of 200 slows small streams), filter pushdown to Python
    sources, and errors only in the log. Spark's UI is on, as always in Spark."""
    merged: dict[str, object] = {
        "spark.app.name": "penstock",
        "spark.master": "local[*]",
        "spark.sql.shuffle.partitions": os.cpu_count() or 2,
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": shlex.quote(
            f"-Dlog4j2.configurationFile={LOG4J_CONFIGURATION}"
        ),
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in merged.items()
    }


def session(**conf: object) -> SparkSession:
    """Return the session with this configuration: `session(**{"spark.master": "local[2]"})`. See
    `session_conf` for the defaults."""
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in session_conf(**conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def quiet_session(log: Path, **conf: object) -> SparkSession:
    """Return a session that logs to a file instead of stderr, where Java prints warnings at every
    start. SessionError if Spark does not start."""
    _disable_error_printing()
    with _start_to(log, conf):
        return session(**conf)


def start_java(log: Path, **conf: object) -> Any:
    """Start the Java process of a later `quiet_session` with the same configuration, and return its
    Py4J view. Spark's classes can be called in it before Spark itself starts. SessionError if Java
    does not start."""
    with _start_to(log, conf):
        prepare_environment()
        from pyspark import SparkConf, SparkContext

        settings = SparkConf().setAll(list(session_conf(**conf).items()))
        SparkContext._ensure_initialized(conf=settings)
        return SparkContext._jvm


@contextlib.contextmanager
def _start_to(log: Path, conf: Mapping[str, object]) -> Iterator[None]:
    """Send the messages of starting processes to the log, and describe a failure with its end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with _stderr_to(log):
        try:
            yield
        except Exception as error:
            message = (
                f"Spark did not start with the master {session_conf(**conf)['spark.master']}: "
                f"{spark_reason(str(error))}"
            )
            raise SessionError("\n".join([message, *_last_lines(log)])) from error


def _disable_error_printing() -> None:
    """PySpark prints errors as JSON in addition to raising them."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _last_lines(log: Path) -> list[str]:
    """Return the end of the log without stack traces."""
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("at ")][
        -_LOG_LINES_IN_ERROR:
    ]


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect stderr of this process and of processes started meanwhile."""
    sys.stderr.flush()
    original = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
