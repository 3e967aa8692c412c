"""Spark Declarative Pipelines projects, run by Spark's own program for them with the session that
Penstock's pipelines have.

A project is a directory with a spark-pipeline.yml. Its Python files find the brokers in Spark's
setting spark.penstock.bootstrap.servers. Spark runs such a pipeline until what is there is drained,
and through Spark Connect, which needs a few packages more. A Spark on this machine keeps the
project's tables and what it knows of them beside the project: Spark's own default forgets them, and
the next run fails.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.spark.pipeline.checkpoint import default_checkpoint
from penstock.spark.pipeline.errors import PipelineError, located
from penstock.spark.session import prepare, settings
from penstock.spark.shipping import is_local, ship

_SPECS = ("spark-pipeline.yml", "spark-pipeline.yaml")
_NEEDED = ("grpc", "grpc_status", "google.rpc", "yaml", "zstandard")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def spec_of(path: Path) -> Path | None:
    """The project's, where a path is one's directory or that file itself."""
    candidates = (
        [path / name for name in _SPECS] if path.is_dir() else [path] if path.name in _SPECS else []
    )
    return next((one.resolve() for one in candidates if one.is_file()), None)


def run_project(
    spec: Path, bootstrap_servers: str, master: str, conf: Mapping[str, str], *, dry: bool
) -> None:
    """Spark's program prints what it does; what else is said goes to a log. PipelineError where it
    fails."""
    _check_installed()
    prepare()
    kept = Path(default_checkpoint(spec))
    kept.mkdir(parents=True, exist_ok=True)
    log = kept / "spark.log"
    with tempfile.TemporaryDirectory(prefix="penstock-") as shipped, log.open("wb") as errors:
        ours = {
            "spark.penstock.bootstrap.servers": bootstrap_servers,
            **ship(master, Path(shipped)),
        }
        chosen = settings(**{**ours, **(_catalog(kept) if is_local(master) else {}), **conf})
        command = [
            sys.executable,
            "-m",
            "pyspark.pipelines.cli",
            "dry-run" if dry else "run",
            "--spec",
            str(spec),
        ]
        ran = subprocess.run(
            command, cwd=spec.parent, env=_environment(master, chosen), stderr=errors, check=False
        )
    if ran.returncode:
        raise PipelineError(
            f"{located(log.read_text(errors='replace'), spec.parent)} (Spark's own words are in "
            f"{log})"
        )


def _environment(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """With which Spark's program starts a Connect server of its own on any master."""
    words = [
        word
        for name, value in conf.items()
        if name != "spark.master"
        for word in ("--conf", f"{name}={value}")
    ]
    started = {
        "SPARK_API_MODE": "connect",
        "MASTER": master,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"]),
    }
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    return {**inherited, **started, "PYTHONUNBUFFERED": "1"}


def _catalog(kept: Path) -> dict[str, str]:
    """Which tables there are is kept in files."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={kept / 'catalog'};create=true",
        _JAVA_OPTIONS: (
            f"{settings()[_JAVA_OPTIONS]} "
            f"{shlex.quote(f'-Dderby.stream.error.file={kept}/catalog.log')}"
        ),
    }


def _check_installed() -> None:
    missing = [name for name in _NEEDED if not _is_there(name)]
    if missing:
        raise PipelineError(
            f"Spark Declarative Pipelines need {', '.join(missing)}: pip install "
            "'penstock[spark]' brings them"
        )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
