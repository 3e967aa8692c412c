"""The configuration of a node: its server.properties and the overrides of its command line.

Reads no file itself. All problems of a file are raised together.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, cast

from penstock.config import node_settings as node
from penstock.config.checks import CHECKS, is_broker, is_controller
from penstock.config.listeners import (
    Listener,
    advertised_listeners,
    controller_listener_names,
    inter_broker_listener_name,
    listeners,
)
from penstock.config.metrics_settings import metrics_listener
from penstock.config.parsing import ParsedSettings
from penstock.config.properties import Entry, Properties, PropertiesError, decode_properties
from penstock.config.quorum import Address, Voter, bootstrap_servers, given_voters
from penstock.config.setting import Setting
from penstock.ids import NodeId

T = TypeVar("T")


class ConfigError(Exception):
    """An invalid configuration. Every problem has its file, line and reason."""

    def __init__(self, problems: tuple[str, ...], warnings: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.warnings = warnings


@dataclass(frozen=True)
class NodeConfig:
    """The settings of one node: `config[LOG_SEGMENT_BYTES]` is an int. Properties derive values
    from several settings."""

    values: Mapping[str, Any] = field(repr=False)  # some are secrets
    given: frozenset[str]
    warnings: tuple[str, ...] = ()

    def __getitem__(self, setting: Setting[T], /) -> T:
        return (
            cast(T, self.values[setting.name])
            if setting.name in self.values
            else setting.default_value()
        )

    def is_set(self, setting: Setting[Any], /) -> bool:
        return setting.name in self.given

    @property
    def node_id(self) -> NodeId:
        return NodeId(self[node.NODE_ID])

    @property
    def is_broker(self) -> bool:
        return is_broker(self)

    @property
    def is_controller(self) -> bool:
        return is_controller(self)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self[node.LOG_DIRS] or self[node.LOG_DIR]

    @property
    def metadata_log_dir(self) -> str:
        """The directory of the metadata log, spelled as in log.dirs if it is one of them."""
        given = self[node.METADATA_LOG_DIR] or self.log_dirs[0]
        return next(
            (
                path
                for path in self.log_dirs
                if posixpath.normpath(path) == posixpath.normpath(given)
            ),
            given,
        )

    @property
    def directories(self) -> tuple[str, ...]:
        """All directories of the node, including that of the metadata log, each once."""
        return tuple(dict.fromkeys((*self.log_dirs, self.metadata_log_dir)))

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return listeners(self)

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        return advertised_listeners(self)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The controller listeners of this node; none without the controller role."""
        names = self.controller_listener_names
        return tuple(listener for listener in self.listeners if listener.name in names)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        names = self.controller_listener_names
        return tuple(listener for listener in self.listeners if listener.name not in names)

    @property
    def advertised_broker_listeners(self) -> tuple[Listener, ...]:
        names = self.controller_listener_names
        return tuple(
            listener for listener in self.advertised_listeners if listener.name not in names
        )

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return controller_listener_names(self)

    @property
    def inter_broker_listener_name(self) -> str:
        return inter_broker_listener_name(self)

    @property
    def reserved_listener_names(self) -> frozenset[str]:
        """The listeners that keep the cluster alive: those of controllers, and the one between
        brokers if clients have another one."""
        brokers = {listener.name for listener in self.broker_listeners}
        between = {self.inter_broker_listener_name} if len(brokers) > 1 else set[str]()
        return frozenset({*self.controller_listener_names, *(between & brokers)})

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The static voters. Empty in a dynamic quorum, on a single controller, and on a broker
        with bootstrap servers."""
        return given_voters(self)

    @property
    def is_own_quorum(self) -> bool:
        """True for a controller without static voters. It is the only voter, unless its metadata
        log has voters (KIP-853) or it was formatted to join a quorum."""
        return self.is_controller and not self.voters

    @property
    def bootstrap_servers(self) -> tuple[Address, ...]:
        return bootstrap_servers(self)

    @property
    def metrics_listener(self) -> Address | None:
        """The address of the page of metrics; None if there is none."""
        return metrics_listener(self)


def read_node_config(
    data: bytes, file: str, overrides: Mapping[str, str] | None = None
) -> NodeConfig:
    """Parse the bytes of a server.properties. Raises ConfigError with all problems."""
    try:
        properties = decode_properties(data, file)
    except PropertiesError as error:
        raise ConfigError((str(error),)) from error
    return node_config(properties, file, overrides)


def node_config(
    properties: Properties, file: str, overrides: Mapping[str, str] | None = None
) -> NodeConfig:
    """Overrides take precedence over the file. Raises ConfigError with all problems."""
    entries = {**properties.entries, **_override_entries(overrides or {})}
    parsed = ParsedSettings(entries, file)
    for check in CHECKS:
        parsed.run_check(check)
    warnings = (*properties.warnings, *parsed.warnings)
    if parsed.problems:
        raise ConfigError(parsed.problems, warnings)
    return NodeConfig(MappingProxyType(parsed.values), frozenset(entries), warnings)


def _override_entries(overrides: Mapping[str, str]) -> dict[str, Entry]:
    return {name: Entry(name, value, f"--override {name}", 0) for name, value in overrides.items()}
