"""The loggers of this process as configs of the resource BROKER_LOGGER (KIP-412).

A logger has the level of its nearest ancestor until it gets one of its own. Levels are Kafka's;
TRACE is below Python's DEBUG. A change lasts until the process ends.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.audit_log import audit
from penstock.limits import LOGGED_NAME_CHARACTERS

if TYPE_CHECKING:
    # Not imported at run time: the server imports this module, and a node must start quickly.
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
# Python has no name for it, and would write "Level 5".
logging.addLevelName(TRACE, "TRACE")
# What Java parses as an integer. Python refuses texts of thousands of digits with a ValueError.
_NODE_ID = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>\d{1,10})")
_NO_ID = 2**31
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
    found = _NODE_ID.fullmatch(name)
    received = int(found["sign"] + found["digits"]) if found else _NO_ID
    if not -(2**31) <= received < 2**31:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {_cut(name)}"
        )
    if received != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {node_id}, but received {received}",
        )


def check_configs(configs: Sequence[Config]) -> None:
    """Raise INVALID_REQUEST for a name that occurs twice or has no value, as Kafka does for every
    type of resource before it looks at the levels (ConfigAdminManager.preprocess)."""
    if len({config.name for config in configs}) != len(configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        config.name
        for config in configs
        if config.value is None and config.config_operation != _DELETE
    ]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {_cut(', '.join(nulls))}"
        )


def alter(configs: Sequence[Config], *, validate_only: bool) -> None:
    """Set or delete the levels of loggers: all of them, or none if one is refused."""
    for config in configs:
        _check(config)
    if validate_only:
        return
    level = audit.getEffectiveLevel()
    for config in configs:
        if config.config_operation == _SET:
            _logger(config.name).setLevel(_LEVELS[config.value or ""])
            logger.warning("updated the log level of %s to %s", config.name, config.value)
        else:
            _logger(config.name).setLevel(logging.NOTSET)
            logger.warning("deleted the log level of %s", config.name)
    if level <= logging.INFO < audit.getEffectiveLevel():  # an ancestor's level was altered
        audit.setLevel(level)


def _check(config: Config) -> None:
    operation = config.config_operation
    if operation not in (_SET, _DELETE):
        name = _OTHERS.get(operation, f"Unknown operation type {operation}")
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{name} is not allowed for the BROKER_LOGGER resource"
        )
    if config.name != ROOT and config.name not in logging.root.manager.loggerDict:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {_cut(config.name)} does not exist!")
    if operation == _DELETE and config.name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
        )
    if operation == _SET and config.value not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {config.name} to {_cut(config.value or '')} as it is not "
            f"a supported log level. Valid log levels are {', '.join(sorted(_LEVELS))}",
        )
    if (
        operation == _SET
        and config.name == audit.name
        and _LEVELS[config.value or ""] > logging.INFO
    ):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{audit.name} cannot be silenced by a request: its level is INFO or below",
        )


def _cut(text: str) -> str:
    """A client's text may be as long as the longest message that a response can have."""
    return text if len(text) <= LOGGED_NAME_CHARACTERS else f"{text[:LOGGED_NAME_CHARACTERS]}…"


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(found: logging.Logger) -> str:
    level = found.getEffectiveLevel()
    return next((name for name, number in reversed(_LEVELS.items()) if level >= number), "TRACE")
