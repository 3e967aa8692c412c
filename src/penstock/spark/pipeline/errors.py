"""What went wrong in a pipeline, in words: the step and line of the pipeline's file, Spark's reason
without its plans and traces, and the records that were read at the time."""

from __future__ import annotations

import ast
import re
import traceback
from pathlib import Path

from penstock.spark.option_values import OptionError

# Spark's messages go on with an SQL state, a plan, a stack trace or the context of a query.
_END_OF_REASON = re.compile(r"\.?\s*SQLSTATE: \w+|\n\s+at |\n==|\n'|\n\+-|;\n|JVM stacktrace:")
_CALLED_FROM = re.compile(r"was called from\s+(?P<file>\S+?):(?P<line>\d+)")
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
# What Java's errors are surrounded with on their way to Python.
_JAVAS = re.compile(
    r"^An error occurred while calling [^\n]*\n: |^(?:[\w$]+\.)+[\w$]+(?:Exception|Error): "
)
_TRACE = "Traceback (most recent call last)"
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+): (.*)", re.MULTILINE | re.DOTALL)
# Errors that say all in words.
_PLAIN = ("DataLossError", "KafkaError", "OptionError")
_SHOWN_CHARACTERS = 100
# The archive of a pipeline's modules, as workers have it.
MODULES = "modules.zip"


class PipelineError(Exception):
    """Says what is wrong with a pipeline, and where."""


def explained(error: BaseException, path: Path) -> str:
    """An error raised while the pipeline's file was imported or `build` was called."""
    where = _step_of(error, path.resolve().parent) or str(path)
    if isinstance(error, SyntaxError):
        where, said = f"{error.filename}, line {error.lineno}", f"syntax error: {error.msg}"
    else:
        said = (
            reason(str(error))
            if _is_sparks(error) or isinstance(error, OptionError)
            else f"{type(error).__name__}: {error}"
        )
    return f"{where}: {said}"


def failure(message: str, query: str, records: str, directory: Path) -> str:
    """An error with which a query ended. `message` is Spark's."""
    said = f"the query {query} failed: {located(message, directory)}"
    return f"{said} ({records})" if records else said


def located(message: str, directory: Path) -> str:
    """The reason, and the step in the files of the directory that Spark's message tells of."""
    places = [*_FRAME.finditer(message), *_CALLED_FROM.finditer(message)]
    steps = [
        _step_at(path, int(one["line"]))
        for one in places
        if (path := _own(one["file"], directory.resolve())) is not None
    ]
    return f"{steps[-1]}: {reason(message)}" if steps else reason(message)


def reason(message: str) -> str:
    """The innermost error that Spark's message tells of, without what surrounds it."""
    inner = message.rpartition("Caused by: ")[2]
    text = _pythons(inner) or _JAVAS.sub("", _JAVAS.sub("", inner))
    return " ".join(_END_OF_REASON.split(text, maxsplit=1)[0].split())


def _pythons(message: str) -> str | None:
    """What is behind the last traceback of Python."""
    found = (
        _PYTHON_ERROR.search(message, message.rindex(_TRACE) + len(_TRACE) + 1)
        if _TRACE in message
        else None
    )
    if found is None:
        return None
    return found[2] if found[1] in _PLAIN else f"{found[1]}: {found[2]}"


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark", "py4j"))


def _step_of(error: BaseException, directory: Path) -> str | None:
    """The innermost function beside the pipeline that was being called."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(directory):
            return _named(frame.name, Path(frame.filename), frame.lineno or 0)
    return None


def _own(file: str, directory: Path) -> Path | None:
    """The pipeline's file that a place is in: workers have it in an archive."""
    shipped = file.partition(f"{MODULES}/")[2]
    path = directory / shipped if shipped else Path(file)
    return path if path.is_relative_to(directory) and path.is_file() else None


def _step_at(path: Path, line: int) -> str:
    """The function that a line is in, and the line's own words: they name the columns."""
    text = path.read_text()
    inside = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    step = _named(
        max(inside, key=lambda node: node.lineno).name if inside else "<module>", path, line
    )
    return f"{step}: {text.splitlines()[line - 1].strip()[:_SHOWN_CHARACTERS]}"


def _named(function: str, path: Path, line: int) -> str:
    return (
        f"{path.name}, line {line}"
        if function == "<module>"
        else f"step {function} ({path.name}, line {line})"
    )
