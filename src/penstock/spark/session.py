"""The Spark session that Penstock's commands use, and what any session needs of the environment."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import java_home
from penstock.spark.pipeline.errors import reason
from penstock.spark.python import environment_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")

_SHOWN_LINES = 3


class NoSession(RuntimeError):
    """Spark could not be started. Says why, with the end of its log."""


def prepare() -> None:
    """Sets what is unset: JAVA_HOME, and PYSPARK_PYTHON to this environment's Python, where
    format("penstock") is found. Must come before the session, because Java is started with it. A
    JAVA_HOME that Spark cannot use is replaced, and that is said."""
    os.environ["JAVA_HOME"] = str(java_home())
    python = str(environment_python())
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)


def settings(**conf: object) -> dict[str, str]:
    """Settings are Spark's own. Those given win over these: all cores of this machine, as many
    shuffle partitions as cores (Spark's 200 make small streams crawl), filters pushed down to the
    source, and quiet logs."""
    found: dict[str, object] = {
        "spark.app.name": "penstock",
        "spark.master": "local[*]",
        "spark.sql.shuffle.partitions": os.cpu_count() or 2,
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": shlex.quote(f"-Dlog4j2.configurationFile={LOGGING}"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in found.items()
    }


def session(**conf: object) -> SparkSession:
    """The session with these `settings`, as in `session(**{"spark.master": "local[2]"})`."""
    prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings(**conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def quiet_session(log: Path, **conf: object) -> SparkSession:
    """A session that logs to a file, as does Java, which has something to say whenever it starts.
    NoSession where there is none."""
    log.parent.mkdir(parents=True, exist_ok=True)
    _silence()
    with _stderr_to(log):
        try:
            return session(**conf)
        except Exception as error:
            said = (
                f"Spark cannot be started with the master {settings(**conf)['spark.master']}: "
                f"{reason(str(error))}"
            )
            raise NoSession("\n".join([said, *_last_words(log)])) from error


def _silence() -> None:
    """PySpark prints its errors as JSON besides raising them."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _last_words(log: Path) -> list[str]:
    """Without stack traces."""
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("at ")][
        -_SHOWN_LINES:
    ]


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Also of what is started in here."""
    sys.stderr.flush()
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
