"""Extracts the reason from Spark's error messages, which contain plans and stack traces."""

from __future__ import annotations

import re

# An SQL state, a plan, a stack trace or the query context follow the reason.
_END_OF_REASON = re.compile(r"\.?\s*SQLSTATE: \w+|\n\s+at |\n==|\n'|\n\+-|;\n|JVM stacktrace:")
# Py4J and Java put this before the message of an exception.
_JAVA_PREFIX = re.compile(
    r"^An error occurred while calling [^\n]*\n: |^(?:[\w$]+\.)+[\w$]+(?:Exception|Error): "
)
_TRACEBACK = "Traceback (most recent call last)"
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+): (.*)", re.MULTILINE | re.DOTALL)
# Errors of Penstock, whose messages are complete without the class name.
_PENSTOCK_ERRORS = ("DataLossError", "KafkaError", "OptionError", "SinkError")


def spark_reason(message: str) -> str:
    """Return the innermost error of a message on one line, without stack trace and plan."""
    inner = message.rpartition("Caused by: ")[2]
    text = _python_error(inner) or _JAVA_PREFIX.sub("", _JAVA_PREFIX.sub("", inner))
    return " ".join(_END_OF_REASON.split(text, maxsplit=1)[0].split())


def _python_error(message: str) -> str | None:
    """Return the error after the last Python traceback."""
    if _TRACEBACK not in message:
        return None
    match = _PYTHON_ERROR.search(message, message.rindex(_TRACEBACK) + len(_TRACEBACK) + 1)
    if match is None:
        return None
    return match[2] if match[1] in _PENSTOCK_ERRORS else f"{match[1]}: {match[2]}"
