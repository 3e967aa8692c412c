"""Spark Declarative Pipelines projects, run by Spark's own command for them with the session that Penstock's pipelines have.

A project is a directory with a spark-pipeline.yml. Its Python files find the brokers in Spark's setting spark.penstock.bootstrap.servers.
Spark runs such a pipeline until what is there is drained, and through Spark Connect, which needs a few packages more.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.spark.pipeline_errors import PipelineError
from penstock.spark.session import LOGGING, prepare, settings
from penstock.spark.shipping import ship

_SPECS = ("spark-pipeline.yml", "spark-pipeline.yaml")
_NEEDED = ("grpc", "grpc_status", "google.rpc", "yaml", "zstandard")


def spec_of(path: Path) -> Path | None:
    """The project's, where a path is one's directory or that file itself."""
    candidates = [path / name for name in _SPECS] if path.is_dir() else [path] if path.name in _SPECS else []
    return next((one for one in candidates if one.is_file()), None)


def run_project(spec: Path, bootstrap_servers: str, master: str, conf: Mapping[str, str], *, dry: bool) -> None:
    """Spark's command shows what it does. PipelineError where it fails."""
    _check_installed()
    prepare()
    with tempfile.TemporaryDirectory(prefix="penstock-") as shipped:
        given = {"spark.penstock.bootstrap.servers": bootstrap_servers, **ship(master, Path(shipped)), **conf}
        # Each Java that this starts looks here for how to log.
        shutil.copy(LOGGING, shipped)
        environment = {"SPARK_CONF_DIR": shipped, **os.environ}
        ran = subprocess.run(_command(spec, master, settings(**given), dry=dry), env=environment, check=False)
    if ran.returncode:
        raise PipelineError(f"Spark's command for {spec} ended with {ran.returncode}: what it said last is the reason")


def _command(spec: Path, master: str, conf: Mapping[str, str], *, dry: bool) -> list[str]:
    """`--remote` takes a master too: a Connect server of our own is started with it."""
    import pyspark

    spark = Path(str(pyspark.__file__)).parent
    options = [word for name, value in conf.items() if name != "spark.master" for word in ("--conf", f"{name}={value}")]
    program = [str(spark / "bin" / "spark-class"), "org.apache.spark.deploy.SparkPipelines", str(spark / "pipelines" / "cli.py")]
    return [*program, "dry-run" if dry else "run", "--spec", str(spec), "--remote", master, *options]


def _check_installed() -> None:
    missing = [name for name in _NEEDED if not _is_there(name)]
    if missing:
        raise PipelineError(f"Spark Declarative Pipelines need {', '.join(missing)}: pip install 'pyspark[pipelines]'")


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
