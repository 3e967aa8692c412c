"""Checks between the settings of a node: Kafka's rules, and its error messages where it has them.

A check raises InconsistentSettingsError. All checks run, so that the problems of a file are
reported together.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.config import cleaner_settings as cleaner
from penstock.config import group_settings as group
from penstock.config import node_settings as node
from penstock.config.listeners import (
    advertised_listeners,
    connection_overrides,
    controller_listener_names,
    inter_broker_listener_name,
    listener_max_connections,
    listeners,
    security_protocols,
)
from penstock.config.metrics_settings import check_metrics_listener
from penstock.config.quorum import bootstrap_servers, given_voters, ids_text
from penstock.config.sasl_settings import check_sasl
from penstock.config.setting import InconsistentSettingsError, Setting, Values, require
from penstock.config.ssl_settings import check_listener_ssl
from penstock.config.topic import broker_default
from penstock.config.topic_settings import RETENTION_MS, TOPIC_SETTINGS, TOPIC_SYNONYMS

BROKER = "broker"
CONTROLLER = "controller"


def is_broker(values: Values) -> bool:
    return BROKER in values[node.PROCESS_ROLES]


def is_controller(values: Values) -> bool:
    return CONTROLLER in values[node.PROCESS_ROLES]


def check_log_directories(values: Values) -> None:
    given = values[node.LOG_DIRS]
    setting = node.LOG_DIR if given is None else node.LOG_DIRS
    directories = values[node.LOG_DIR] if given is None else given
    require(
        bool(directories),
        setting,
        "At least one log directory must be defined via log.dirs or log.dir.",
    )
    distinct = {posixpath.normpath(directory) for directory in directories}
    require(
        len(distinct) == len(directories),
        setting,
        f"log directories must be distinct: {','.join(directories)}",
    )


def check_cordoned_directories(values: Values) -> None:
    directories = values[node.LOG_DIRS] or values[node.LOG_DIR]
    cordoned = values[node.CORDONED_LOG_DIRS]
    check_cordons(cordoned, directories)


def check_cordons(paths: Sequence[str], directories: Sequence[str]) -> None:
    """Raise InconsistentSettingsError unless these may be cordoned of the log directories."""
    if node.ALL_LOG_DIRS in paths:
        require(
            len(paths) == 1,
            node.CORDONED_LOG_DIRS,
            f"* stands for all log directories and must be the only entry, not {','.join(paths)}",
        )
        return
    unknown = [path for path in paths if path not in directories]
    require(
        not unknown,
        node.CORDONED_LOG_DIRS,
        f"{','.join(unknown)} is not in log.dirs or log.dir",
    )


def check_metadata_directory(values: Values) -> None:
    require(
        values[node.METADATA_LOG_DIR] != "",
        node.METADATA_LOG_DIR,
        "metadata.log.dir is empty: set it to a directory or remove it",
    )


def check_controller_listeners(values: Values) -> None:
    """A controller listens on all controller listeners. A node with just the broker role listens on
    none, but needs the security protocol of the first."""
    setting, names = node.CONTROLLER_LISTENER_NAMES, controller_listener_names(values)
    local = {listener.name for listener in listeners(values)}
    if is_controller(values):
        for name in names:
            reason = (
                f"{setting.name} must only contain values appearing in the 'listeners' "
                "configuration when running the KRaft controller role"
            )
            require(name in local, setting, f"{reason}: {name} does not")
        return
    protocols = security_protocols(values)
    for name in names:
        reason = (
            f"{setting.name} must not contain a value appearing in the 'listeners' configuration"
        )
        require(
            name not in local,
            setting,
            f"{reason} when running KRaft with just the broker role: {name} does",
        )
        require(
            name in protocols,
            setting,
            (
                f"Controller listener with name {name} defined in {setting.name} not found in "
                "listener.security.protocol.map"
            ),
        )


def check_controller_only_listeners(values: Values) -> None:
    if is_broker(values):
        return
    others = [
        str(listener)
        for listener in listeners(values)
        if listener.name not in controller_listener_names(values)
    ]
    reason = (
        "The listeners config must only contain KRaft controller listeners from "
        "controller.listener.names when process.roles=controller"
    )
    require(not others, node.LISTENERS, f"{reason}, not {','.join(others)}")


def check_broker_listeners(values: Values) -> None:
    if not is_broker(values):
        return
    controllers = controller_listener_names(values)
    names = [
        listener.name
        for listener in advertised_listeners(values)
        if listener.name not in controllers
    ]
    local = [listener.name for listener in listeners(values)]
    setting = (
        node.ADVERTISED_LISTENERS if values.is_set(node.ADVERTISED_LISTENERS) else node.LISTENERS
    )
    reason = (
        "There must be at least one broker advertised listener. Perhaps all listeners appear "
        "in controller.listener.names?"
    )
    require(bool(names), setting, reason)
    unknown = [name for name in names if name not in local]
    reason = (
        "advertised.listeners listener names must be equal to or a subset of the ones "
        "defined in listeners"
    )
    require(
        not unknown,
        setting,
        f"{reason}. Found {','.join(unknown)}. The valid options are {','.join(local)}",
    )
    inter_broker = inter_broker_listener_name(values)
    reason = (
        "inter.broker.listener.name must be a listener name defined in "
        f"advertised.listeners, which {inter_broker} is not"
    )
    require(
        inter_broker in names,
        node.INTER_BROKER_LISTENER_NAME,
        f"{reason}. The valid options are {','.join(names)}",
    )


def check_quorum(values: Values) -> None:
    setting, voters, servers = (
        node.CONTROLLER_QUORUM_VOTERS,
        given_voters(values),
        bootstrap_servers(values),
    )
    node_id = values[node.NODE_ID]
    is_voter = node_id in [voter.node_id for voter in voters]
    if is_controller(values):
        reason = (
            f"If process.roles contains the 'controller' role, the node id {node_id} must be "
            "included in the set of voters"
        )
        require(not voters or is_voter, setting, f"{reason} {setting.name}={ids_text(voters)}")
        return
    reason = (
        "If using process.roles, either controller.quorum.bootstrap.servers must contain the "
        "set of bootstrap controllers"
    )
    require(
        bool(voters or servers),
        setting,
        f"{reason} or {setting.name} must contain a parseable set of controllers.",
    )
    reason = (
        f"If process.roles contains just the 'broker' role, the node id {node_id} must not be "
        "included in the set of voters"
    )
    require(not is_voter, setting, f"{reason} {setting.name}={ids_text(voters)}")


def check_retention(values: Values) -> None:
    retention_ms = broker_default(values, RETENTION_MS)
    require(
        retention_ms != 0,
        _source(values, RETENTION_MS.name),
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )


def check_topic_default(values: Values, setting: Setting[Any]) -> None:
    """Validate a broker setting as the default of a topic setting, which has stricter bounds."""
    value = broker_default(values, setting)
    reason = setting.valid.refusal(setting.name, value) if setting.valid else None
    if reason is not None:
        source = _source(values, setting.name)
        raise InconsistentSettingsError(
            source,
            (
                f"Invalid value {value} for configuration {setting.name}, for which this is the "
                f"default: {reason}"
            ),
        )


def check_compaction_lag(values: Values) -> None:
    least, most = (
        values[cleaner.LOG_CLEANER_MIN_COMPACTION_LAG_MS],
        values[cleaner.LOG_CLEANER_MAX_COMPACTION_LAG_MS],
    )
    reason = (
        f"log.cleaner.min.compaction.lag.ms ({least}) must not exceed "
        f"log.cleaner.max.compaction.lag.ms ({most})"
    )
    require(least <= most, cleaner.LOG_CLEANER_MIN_COMPACTION_LAG_MS, reason)


def check_offsets_codec(values: Values) -> None:
    setting = group.OFFSETS_TOPIC_COMPRESSION_CODEC
    require(0 <= values[setting] <= 4, setting, f"Unknown compression type id: {values[setting]}")


def check_consumer_groups(values: Values) -> None:
    """Minimum, value and maximum of each interval must be ordered."""
    ranges = (
        (
            group.CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
            group.CONSUMER_HEARTBEAT_INTERVAL_MS,
            group.CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        (
            group.CONSUMER_MIN_SESSION_TIMEOUT_MS,
            group.CONSUMER_SESSION_TIMEOUT_MS,
            group.CONSUMER_MAX_SESSION_TIMEOUT_MS,
        ),
        (
            group.CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
            group.CONSUMER_ASSIGNMENT_INTERVAL_MS,
            group.CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
        ),
    )
    for least, value, most in ranges:
        require(
            values[most] >= values[least],
            most,
            f"{most.name} must be greater than or equal to {least.name}",
        )
        require(
            values[value] >= values[least],
            value,
            f"{value.name} must be greater than or equal to {least.name}",
        )
        require(
            values[value] <= values[most],
            value,
            f"{value.name} must be less than or equal to {most.name}",
        )
    interval, session = group.CONSUMER_HEARTBEAT_INTERVAL_MS, group.CONSUMER_SESSION_TIMEOUT_MS
    require(
        values[interval] < values[session],
        interval,
        f"{interval.name} must be less than {session.name}",
    )


def _source(values: Values, topic_setting: str) -> Setting[Any]:
    """Return the broker setting that determines the default of a topic setting."""
    synonyms = [synonym.setting for synonym in TOPIC_SYNONYMS[topic_setting]]
    return next((setting for setting in synonyms if values[setting] is not None), synonyms[-1])


def check_connections(values: Values) -> None:
    overrides = connection_overrides(values[node.MAX_CONNECTIONS_PER_IP_OVERRIDES])
    listener_max_connections(values)
    require(
        values[node.MAX_CONNECTIONS_PER_IP] != 0 or bool(overrides),
        node.MAX_CONNECTIONS_PER_IP,
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
        "property is set.",
    )


CHECKS: tuple[Callable[[Values], None], ...] = (
    check_connections,
    check_log_directories,
    check_cordoned_directories,
    check_metadata_directory,
    check_controller_listeners,
    check_controller_only_listeners,
    check_broker_listeners,
    check_quorum,
    check_retention,
    check_compaction_lag,
    check_offsets_codec,
    check_consumer_groups,
    check_metrics_listener,
    check_sasl,
    check_listener_ssl,
    *(partial(check_topic_default, setting=setting) for setting in TOPIC_SETTINGS.values()),
)
