"""Loads a pipeline's file and calls its `build`. Errors are reported in a line or two."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.spark.pipeline import Pipeline
from penstock.spark.pipeline.errors import PipelineError, build_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The file that `penstock pipeline init` writes. Its directory stands for it.
PIPELINE_FILE = "pipeline.py"


@dataclass(frozen=True, slots=True)
class Application:
    """An imported pipeline file."""

    path: Path
    build: Callable[[Pipeline], Mapping[str, DataStreamWriter]]
    fail_on_late_rows: bool

    def queries(
        self, spark: SparkSession, bootstrap_servers: str, settings: Mapping[str, str]
    ) -> dict[str, DataStreamWriter]:
        """Call `build` and return its queries, which are planned but not started."""
        try:
            writers = self.build(Pipeline(spark, bootstrap_servers, settings))
        except Exception as error:
            raise PipelineError(build_error(error, self.path)) from error
        if not isinstance(writers, Mapping) or not writers:
            raise PipelineError(
                f"build in {self.path} returned {writers!r}: it must return a dict of query names "
                "and stream writers"
            )
        for name, writer in writers.items():
            _check_query(self.path, name, writer)
        return dict(writers)


def find_file(path: Path) -> Path:
    """Return the pipeline's file: the path, or pipeline.py if the path is a directory that has
    one."""
    file = path / PIPELINE_FILE
    return file if file.is_file() else path


def check_file(path: Path) -> None:
    """PipelineError if the path is not a Python file."""
    if path.suffix == ".py" and path.is_file():
        return
    if path.is_file():
        problem = "is not a Python file"
    elif path.is_dir():
        problem = f"is a directory without {PIPELINE_FILE} and spark-pipeline.yml"
    else:
        problem = "does not exist"
    raise PipelineError(
        f"{path} {problem}: specify the .py file of a pipeline, or the directory of a Spark "
        "Declarative Pipelines project"
    )


def load_application(path: Path) -> Application:
    """Import a pipeline file. Needs a session, since the file may call Spark functions."""
    module = _import_file(path.resolve())
    build = getattr(module, "build", None)
    if not callable(build):
        raise PipelineError(
            f"{path} has no function build: add `def build(pipeline)`, which returns a dict of "
            "query names and stream writers"
        )
    return Application(path, build, bool(getattr(module, "FAIL_ON_LATE_ROWS", False)))


def _import_file(path: Path) -> ModuleType:
    """Import the file under its stem with its directory on sys.path, as workers do when they
    unpickle its functions."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} cannot be imported")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PipelineError(build_error(error, path)) from error
    return module


def _check_query(path: Path, name: object, writer: object) -> None:
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise PipelineError(
            f"build in {path} returned the query name {name!r}: a query name must be usable as a "
            "directory name"
        )
    if not isinstance(writer, DataStreamWriter):
        raise PipelineError(
            f"build in {path} returned a {type(writer).__name__} for query {name}: return the "
            "result of writeStream, pipeline.write or pipeline.dead_letters, without starting it"
        )
