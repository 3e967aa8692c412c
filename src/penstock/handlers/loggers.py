"""The loggers of this process as configs of the resource BROKER_LOGGER (KIP-412).

A logger has the level of its nearest ancestor until it gets one of its own. Levels are Kafka's;
TRACE is below Python's DEBUG. A change lasts until the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

Config = IncrementalAlterConfigsRequest.Resource.Config

BROKER_LOGGER = 8
ROOT = "root"
TRACE = 5
_LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_SET, _DELETE = 0, 1
_OTHERS = {2: "APPEND operation", 3: "SUBTRACT operation"}

logger = logging.getLogger(__name__)


def levels() -> dict[str, str]:
    """Return the level in effect of every logger."""
    names = sorted(logging.root.manager.loggerDict)
    return {name: _level_name(_logger(name)) for name in (ROOT, *names)}


def check_node(node_id: int, name: str) -> None:
    """Raise INVALID_REQUEST unless the resource is this node."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not name.isdecimal():
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        )
    if int(name) != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {node_id}, but received {int(name)}",
        )


def alter(configs: Iterable[Config], *, validate_only: bool) -> None:
    """Set or delete the levels of loggers: all of them, or none if one is refused."""
    for config in configs:
        _check(config)
    if validate_only:
        return
    for config in configs:
        if config.config_operation == _SET:
            _logger(config.name).setLevel(_LEVELS[config.value or ""])
            logger.warning("updated the log level of %s to %s", config.name, config.value)
        else:
            _logger(config.name).setLevel(logging.NOTSET)
            logger.warning("deleted the log level of %s", config.name)


def _check(config: Config) -> None:
    operation = config.config_operation
    if operation not in (_SET, _DELETE):
        name = _OTHERS.get(operation, f"Unknown operation type {operation}")
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{name} is not allowed for the BROKER_LOGGER resource"
        )
    if config.name != ROOT and config.name not in logging.root.manager.loggerDict:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")
    if operation == _DELETE and config.name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
        )
    if operation == _SET and config.value not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {config.name} to {config.value} as it is not a supported "
            f"log level. Valid log levels are {', '.join(sorted(_LEVELS))}",
        )


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(found: logging.Logger) -> str:
    level = found.getEffectiveLevel()
    return next((name for name, number in reversed(_LEVELS.items()) if level >= number), "TRACE")
