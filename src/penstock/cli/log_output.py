"""How a node writes its log: one line an event, as text or JSON, and not too many of one kind.

The loggers are Python's, named after the modules. Two have a meaning of their own:
`penstock.request` logs every request at DEBUG, and `penstock.audit` every change that a client
makes.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from time import gmtime, monotonic, strftime
from typing import TextIO

from penstock.config import log_output_settings
from penstock.config.node import NodeConfig
from penstock.ids import TopicPartition
from penstock.limits import LOG_REPEATS_S

# What callers may add with `extra`.
_FIELDS = ("partition", "epoch", "broker", "cause")
_NEVER_LIMITED = ("penstock.request", "penstock.audit")
_Key = tuple[str, int]


def log_to(config: NodeConfig, file: Path | None) -> None:
    """Write the log of a node to a file, or to standard error without one."""
    stream = None if file is not None else sys.stderr
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(new_handler(config, file, stream))
    for warning in config.warnings:
        logging.getLogger("penstock").warning(warning)


def new_handler(config: NodeConfig, file: Path | None, stream: TextIO | None) -> logging.Handler:
    handler = logging.StreamHandler(stream) if file is None else logging.FileHandler(file)
    as_json = config[log_output_settings.LOG_FORMAT] == log_output_settings.JSON
    handler.setFormatter((JsonFormatter if as_json else TextFormatter)(config.node_id))
    limit = config[log_output_settings.LOG_RATE_LIMIT]
    if limit:
        handler.addFilter(RateLimit(limit))
    return handler


class TextFormatter(logging.Formatter):
    def __init__(self, node_id: int) -> None:
        super().__init__(f"%(asctime)s %(levelname)s [node {node_id}] %(name)s: %(message)s")


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
        arguments = record.args if isinstance(record.args, tuple) else ()
        for argument in arguments:
            if isinstance(argument, TopicPartition):
                event["partition"] = str(argument)
                break
        for field in _FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                event[field] = value if isinstance(value, int) else str(value)
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event)


class RateLimit(logging.Filter):
    """Lets a number of lines of one place in the code pass in some seconds. The last one says that
    further lines are left out, and the next one how many were."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        # Per place: when its seconds began, and how many lines it logged since.
        self._counts: dict[_Key, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name in _NEVER_LIMITED:
            return True
        key, now = (record.pathname, record.lineno), monotonic()
        since, count = self._counts.get(key, (now, 0))
        left_out = 0
        if now >= since + LOG_REPEATS_S:
            left_out, since, count = max(0, count - self._limit), now, 0
        count += 1
        self._counts[key] = since, count
        if left_out:
            _add(record, f"{left_out:,} lines like this one were left out before it")
        if count == self._limit:
            rest_s = since + LOG_REPEATS_S - now
            _add(record, f"further lines like this one are left out for {rest_s:.0f} s")
        return count <= self._limit


def _add(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = f"{record.getMessage()} ({text})", ()
