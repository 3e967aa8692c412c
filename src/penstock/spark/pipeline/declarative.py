"""Runs Spark Declarative Pipelines projects with Spark's command, and reads their checkpoints.

A project is a directory with a spark-pipeline.yml. Its Python files find the brokers in Spark's
setting spark.penstock.bootstrap.servers. Spark runs the pipeline until its sources are drained, and
through Spark Connect, which needs additional packages. On a local master the catalog is stored
beside the project. Spark's default keeps it in memory, and the next run fails since the table
directories exist already.

Spark keeps the checkpoint of a flow in `<storage>/_checkpoints/<dataset>/<flow>/<number>`. A full
refresh of the flow starts the next number.
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
from urllib.parse import unquote, urlsplit

from penstock.spark.pipeline.checkpoint import QueryCheckpoint, default_checkpoint, read_query
from penstock.spark.pipeline.errors import PipelineError, reason_with_step
from penstock.spark.session import prepare_environment, session_conf
from penstock.spark.shipping import is_local, shipping_conf

_SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_REQUIRED_MODULES = ("grpc", "grpc_status", "google.rpc", "yaml", "zstandard")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def find_spec(path: Path) -> Path | None:
    """Return the project's spark-pipeline.yml if the path is that file or its directory."""
    if path.is_dir():
        candidates = [path / name for name in _SPEC_NAMES]
    else:
        candidates = [path] if path.name in _SPEC_NAMES else []
    return next((spec.resolve() for spec in candidates if spec.is_file()), None)


def run_project(
    spec: Path, bootstrap_servers: str, master: str, conf: Mapping[str, str], *, dry_run: bool
) -> None:
    """Run Spark's command. It prints its progress; its log goes to a file. PipelineError if it
    fails."""
    _check_required_modules()
    prepare_environment()
    state = Path(default_checkpoint(spec))
    state.mkdir(parents=True, exist_ok=True)
    log = state / "spark.log"
    with tempfile.TemporaryDirectory(prefix="penstock-") as shipped, log.open("wb") as stderr:
        merged = session_conf(
            **{
                "spark.penstock.bootstrap.servers": bootstrap_servers,
                **shipping_conf(master, Path(shipped)),
                **(_catalog_conf(state) if is_local(master) else {}),
                **conf,
            }
        )
        command = [
            sys.executable,
            "-m",
            "pyspark.pipelines.cli",
            "dry-run" if dry_run else "run",
            "--spec",
            str(spec),
        ]
        result = subprocess.run(
            command, cwd=spec.parent, env=_environment(master, merged), stderr=stderr, check=False
        )
    if result.returncode:
        message = log.read_text(errors="replace")
        raise PipelineError(f"{reason_with_step(message, spec.parent)} (Spark's log is {log})")


def project_checkpoints(spec: Path) -> list[QueryCheckpoint]:
    """Return the newest checkpoint of each streaming flow. PipelineError if there is none."""
    checkpoints = _storage(spec) / "_checkpoints"
    newest: dict[Path, int] = {}
    for offsets in sorted(checkpoints.rglob("offsets")):
        flow, number = offsets.parent.parent, offsets.parent.name
        if number.isdecimal():
            newest[flow] = max(newest.get(flow, 0), int(number))
    if not newest:
        raise PipelineError(
            f"{checkpoints} contains no checkpoint of a flow: run the project first with penstock "
            "pipeline run"
        )
    flows = sorted(newest, key=lambda flow: (flow.name, flow))
    return [read_query(flow / str(newest[flow]), flow.name) for flow in flows]


def _storage(spec: Path) -> Path:
    """Return the directory of the setting storage, where Spark keeps checkpoints."""
    _check_required_modules()
    import yaml  # type: ignore[import-untyped]  # it ships no types

    try:
        settings = yaml.safe_load(spec.read_text())
    except yaml.YAMLError as error:
        raise PipelineError(f"{spec} is not valid YAML: {error}") from error
    storage = settings.get("storage") if isinstance(settings, dict) else None
    if not isinstance(storage, str):
        raise PipelineError(f"{spec} has no storage: add the directory of the checkpoints")
    location = urlsplit(storage)
    if location.scheme not in ("", "file"):
        raise PipelineError(
            f"the storage {storage} in {spec} is not on this machine: penstock pipeline status "
            "reads local directories only"
        )
    return spec.parent / unquote(location.path)


def _environment(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which Spark's command starts its own Spark Connect server."""
    arguments = [
        argument
        for name, value in conf.items()
        if name != "spark.master"
        for argument in ("--conf", f"{name}={value}")
    ]
    connect = {
        "SPARK_API_MODE": "connect",
        "MASTER": master,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
    }
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    return {**inherited, **connect, "PYTHONUNBUFFERED": "1"}


def _catalog_conf(state: Path) -> dict[str, str]:
    """Return the configuration of a catalog that is stored in files."""
    url = f"jdbc:derby:;databaseName={state / 'catalog'};create=true"
    derby_log = shlex.quote(f"-Dderby.stream.error.file={state}/catalog.log")
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": url,
        _JAVA_OPTIONS: f"{session_conf()[_JAVA_OPTIONS]} {derby_log}",
    }


def _check_required_modules() -> None:
    missing = [name for name in _REQUIRED_MODULES if not _is_installed(name)]
    if missing:
        raise PipelineError(
            f"Spark Declarative Pipelines need {', '.join(missing)}, which is not installed: run "
            "pip install 'penstock[spark]'"
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
