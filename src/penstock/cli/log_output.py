"""How a node writes its log: one line an event, as text or JSON, and not too many of one kind.

The loggers are Python's, named after the modules. Two have a meaning of their own:
`penstock.request` logs every request at DEBUG, and `penstock.audit` every change that a client
makes.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from time import gmtime, strftime
from typing import TextIO

from penstock.cli.log_limit import RateLimit, partition_of
from penstock.config import log_output_settings
from penstock.config.node import NodeConfig

# What callers may add with `extra`.
_FIELDS = ("partition", "epoch", "broker", "cause")


def log_to(config: NodeConfig, file: Path | None) -> None:
    """Write the log of a node to a file, or to standard error without one."""
    stream = None if file is not None else sys.stderr
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    handler = new_handler(config, file, stream)
    root.addHandler(handler)
    for limit in handler.filters:
        if isinstance(limit, RateLimit):
            atexit.register(limit.tell, math.inf)
    for warning in config.warnings:
        logging.getLogger("penstock").warning(warning)


def new_handler(config: NodeConfig, file: Path | None, stream: TextIO | None) -> logging.Handler:
    handler = logging.StreamHandler(stream) if file is None else logging.FileHandler(file)
    as_json = config[log_output_settings.LOG_FORMAT] == log_output_settings.JSON
    handler.setFormatter((JsonFormatter if as_json else TextFormatter)(config.node_id))
    limit = config[log_output_settings.LOG_RATE_LIMIT]
    if limit:
        handler.addFilter(RateLimit(limit, handler))
    return handler


class TextFormatter(logging.Formatter):
    """One line an event, and the indented lines of a traceback after it.

    Messages and exceptions have names that clients choose. What is not printable in them is written
    as an escape, so that no client can write a line of the log, or control a terminal.
    """

    def __init__(self, node_id: int) -> None:
        super().__init__(f"%(asctime)s %(levelname)s [node {node_id}] %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.message, record.asctime = record.getMessage(), self.formatTime(record)
        lines = [_printable(self.formatMessage(record))]
        # Not record.exc_text, which another handler may have formatted.
        if record.exc_info:
            lines += _indented(self.formatException(record.exc_info))
        if record.stack_info:
            lines += _indented(self.formatStack(record.stack_info))
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line. `partition` is the one that the message names, if it names one."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        seconds = strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created))
        event: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "node": self._node_id,
            "logger": record.name,
            "message": record.getMessage(),
        }
        partition = partition_of(record)
        if partition is not None:
            event["partition"] = str(partition)
        for field in _FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                event[field] = value if isinstance(value, int) else str(value)
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def _indented(text: str) -> Iterator[str]:
    return (f"    {_printable(line)}" for line in text.split("\n"))
