"""From a pipeline's file to its queries: imports it, calls `build`, and says what is wrong with
either in a line or two."""

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
from penstock.spark.pipeline.errors import PipelineError, explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Application:
    """A pipeline's file, imported."""

    path: Path
    build: Callable[[Pipeline], Mapping[str, DataStreamWriter]]
    fail_on_late_rows: bool

    def queries(
        self, spark: SparkSession, bootstrap_servers: str, settings: Mapping[str, str]
    ) -> dict[str, DataStreamWriter]:
        """Planned, and not started."""
        try:
            found = self.build(Pipeline(spark, bootstrap_servers, settings))
        except Exception as error:
            raise PipelineError(explained(error, self.path)) from error
        if not isinstance(found, Mapping) or not found:
            raise PipelineError(
                f"build of {self.path} gives {found!r}: a dict of stream writers by their "
                "queries' names is expected"
            )
        for name, writer in found.items():
            _check(self.path, name, writer)
        return dict(found)


def check_file(path: Path) -> None:
    if path.suffix != ".py" or not path.is_file():
        what = (
            "is no Python file"
            if path.is_file()
            else "is a directory without spark-pipeline.yml"
            if path.is_dir()
            else "does not exist"
        )
        raise PipelineError(
            f"{path} {what}: give a pipeline's .py file, or the directory of a Spark Declarative "
            "Pipelines project"
        )


def load(path: Path) -> Application:
    """Needs a session: a pipeline may use Spark's functions when it is imported."""
    module = _imported(path.resolve())
    build = getattr(module, "build", None)
    if not callable(build):
        raise PipelineError(
            f"{path} has no function build: add `def build(pipeline)` that gives stream writers "
            "by their queries' names"
        )
    return Application(path, build, bool(getattr(module, "FAIL_ON_LATE_ROWS", False)))


def _imported(path: Path) -> ModuleType:
    """Under its own name and with its directory on the path, as a worker that unpickles its
    functions imports it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} cannot be imported")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PipelineError(explained(error, path)) from error
    return module


def _check(path: Path, name: object, writer: object) -> None:
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise PipelineError(
            f"build of {path} names a query {name!r}: a name that can be a directory's is expected"
        )
    if not isinstance(writer, DataStreamWriter):
        advice = (
            "give what writeStream, pipeline.write or pipeline.dead_letters give, and do not "
            "start it"
        )
        raise PipelineError(
            f"build of {path} gives a {type(writer).__name__} for the query {name}: {advice}"
        )
