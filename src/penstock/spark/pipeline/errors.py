"""Error messages with step and line of the pipeline's file, Spark's reason, and the offsets of the
batch."""

from __future__ import annotations

import ast
import re
import traceback
from pathlib import Path

from penstock.spark.errors import spark_reason
from penstock.spark.options import OptionError
from penstock.spark.shipping import MODULES_ARCHIVE

_CALLED_FROM = re.compile(r"was called from\s+(?P<file>\S+?):(?P<line>\d+)")
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_MAX_SOURCE_LINE = 100


class PipelineError(Exception):
    """A pipeline is invalid or failed. The message says where and why."""


def build_error(error: BaseException, path: Path) -> str:
    """Describe an error raised by the import of the pipeline's file or by `build`."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: syntax error: {error.msg}"
    place = _innermost_step(error, path.resolve().parent) or str(path)
    if _is_spark_error(error) or isinstance(error, OptionError):
        return f"{place}: {spark_reason(str(error))}"
    return f"{place}: {type(error).__name__}: {error}"


def query_failure(message: str, query: str, batch: str, directory: Path) -> str:
    """Describe a failed query: `message` is Spark's, `batch` describes the last batch."""
    failure = f"query {query} failed: {reason_with_step(message, directory)}"
    return f"{failure} ({batch})" if batch else failure


def reason_with_step(message: str, directory: Path) -> str:
    """Return the reason in Spark's message, after the step if the message names a line of a file in
    the directory."""
    places = [*_FRAME.finditer(message), *_CALLED_FROM.finditer(message)]
    steps = [
        _step_at(path, int(place["line"]))
        for place in places
        if (path := _file_in(place["file"], directory.resolve())) is not None
    ]
    return f"{steps[-1]}: {spark_reason(message)}" if steps else spark_reason(message)


def _is_spark_error(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark", "py4j"))


def _innermost_step(error: BaseException, directory: Path) -> str | None:
    """Return the innermost function of the traceback that is in the pipeline's directory."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(directory):
            return _step_name(frame.name, Path(frame.filename), frame.lineno or 0)
    return None


def _file_in(file: str, directory: Path) -> Path | None:
    """Return the file of the pipeline's directory, also for its copy in a worker's archive."""
    shipped = file.partition(f"{MODULES_ARCHIVE}/")[2]
    path = directory / shipped if shipped else Path(file)
    return path if path.is_relative_to(directory) and path.is_file() else None


def _step_at(path: Path, line: int) -> str:
    """Return the function that contains a line, and the text of the line, which names columns."""
    text = path.read_text()
    enclosing = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    function = max(enclosing, key=lambda node: node.lineno).name if enclosing else "<module>"
    source = text.splitlines()[line - 1].strip()[:_MAX_SOURCE_LINE]
    return f"{_step_name(function, path, line)}: {source}"


def _step_name(function: str, path: Path, line: int) -> str:
    if function == "<module>":
        return f"{path.name}, line {line}"
    return f"step {function} ({path.name}, line {line})"
