"""What must hold between the settings of a node, one function a rule (Kafka's, in its words where
it has some).

Each raises RefusedError, or returns. They are run over a draft, all of them, so that a file's
problems are reported together.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.config import group_settings as group
from penstock.config import log_settings as log
from penstock.config import node_settings as node
from penstock.config.listeners import (
    advertised_listeners,
    controller_listener_names,
    inter_broker_listener_name,
    listeners,
    require_built,
    security_protocols,
)
from penstock.config.quorum import bootstrap_servers, given_voters, ids_text
from penstock.config.setting import Setting
from penstock.config.topic import broker_default
from penstock.config.topic_settings import RETENTION_MS, TOPIC_SETTINGS, TOPIC_SYNONYMS
from penstock.config.values import RefusedError, Values, require

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
        f"a log directory is named twice: {','.join(directories)}",
    )


def check_metadata_directory(values: Values) -> None:
    require(
        values[node.METADATA_LOG_DIR] != "",
        node.METADATA_LOG_DIR,
        "metadata.log.dir is empty: name a directory, or remove it",
    )


def check_controller_listeners(values: Values) -> None:
    """A controller listens on every one of them; a broker that is none does not, but must know how
    to speak to the first."""
    setting, names = node.CONTROLLER_LISTENER_NAMES, controller_listener_names(values)
    own = {listener.name for listener in listeners(values)}
    if is_controller(values):
        for name in names:
            reason = (
                f"{setting.name} must only contain values appearing in the 'listeners' "
                "configuration when running the KRaft controller role"
            )
            require(name in own, setting, f"{reason}: {name} does not")
        return
    protocols = security_protocols(values)
    for name in names:
        reason = (
            f"{setting.name} must not contain a value appearing in the 'listeners' configuration"
        )
        require(
            name not in own,
            setting,
            f"{reason} when running KRaft with just the broker role: {name} does",
        )
        known = name in protocols
        require(
            known,
            setting,
            (
                f"Controller listener with name {name} defined in {setting.name} not found in "
                "listener.security.protocol.map"
            ),
        )
        require_built(name, protocols[name], setting)


def check_controller_alone(values: Values) -> None:
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
    require(not others, node.LISTENERS, f"{reason}: {','.join(others)} is none")


def check_broker_listeners(values: Values) -> None:
    if not is_broker(values):
        return
    controllers = controller_listener_names(values)
    names = [
        listener.name
        for listener in advertised_listeners(values)
        if listener.name not in controllers
    ]
    own = [listener.name for listener in listeners(values)]
    where = (
        node.ADVERTISED_LISTENERS if values.is_set(node.ADVERTISED_LISTENERS) else node.LISTENERS
    )
    reason = (
        "There must be at least one broker advertised listener. Perhaps all listeners appear "
        "in controller.listener.names?"
    )
    require(bool(names), where, reason)
    strangers = [name for name in names if name not in own]
    reason = (
        "advertised.listeners listener names must be equal to or a subset of the ones "
        "defined in listeners"
    )
    require(
        not strangers,
        where,
        f"{reason}. Found {','.join(strangers)}. The valid options are {','.join(own)}",
    )
    between = inter_broker_listener_name(values)
    reason = (
        "inter.broker.listener.name must be a listener name defined in "
        f"advertised.listeners, which {between} is not"
    )
    require(
        between in names,
        node.INTER_BROKER_LISTENER_NAME,
        f"{reason}. The valid options are {','.join(names)}",
    )


def check_quorum(values: Values) -> None:
    setting, voters, servers = (
        node.CONTROLLER_QUORUM_VOTERS,
        given_voters(values),
        bootstrap_servers(values),
    )
    own_id, is_voter = (
        values[node.NODE_ID],
        values[node.NODE_ID] in [voter.node_id for voter in voters],
    )
    if is_controller(values):
        reason = (
            f"If process.roles contains the 'controller' role, the node id {own_id} must be "
            "included in the set of voters"
        )
        require(not voters or is_voter, setting, f"{reason} {setting.name}={ids_text(voters)}")
        reason = (
            "several controllers without controller.quorum.voters are a dynamic quorum "
            "(KIP-853), which Penstock does not have yet"
        )
        several = not voters and len(servers) > 1
        require(
            not several,
            node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS,
            f"{reason}: name all of them in {setting.name} as id@host:port",
        )
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
        f"If process.roles contains just the 'broker' role, the node id {own_id} must not be "
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
    """Some broker settings have no bounds of their own, but must do as the default of a topic's."""
    value = broker_default(values, setting)
    reason = setting.valid.refusal(setting.name, value) if setting.valid else None
    if reason is not None:
        source = _source(values, setting.name)
        raise RefusedError(
            source,
            (
                f"Invalid value {value} for configuration {setting.name}, which this gives topics: "
                f"{reason}"
            ),
        )


def check_compaction_lag(values: Values) -> None:
    least, most = (
        values[log.LOG_CLEANER_MIN_COMPACTION_LAG_MS],
        values[log.LOG_CLEANER_MAX_COMPACTION_LAG_MS],
    )
    reason = (
        f"log.cleaner.min.compaction.lag.ms ({least}) is above "
        f"log.cleaner.max.compaction.lag.ms ({most})"
    )
    require(least <= most, log.LOG_CLEANER_MIN_COMPACTION_LAG_MS, reason)


def check_offsets_codec(values: Values) -> None:
    setting = group.OFFSETS_TOPIC_COMPRESSION_CODEC
    require(0 <= values[setting] <= 4, setting, f"Unknown compression type id: {values[setting]}")


def check_consumer_groups(values: Values) -> None:
    """Kafka's words, where a bound of consumer groups is above another."""
    rising = (
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
    for least, value, most in rising:
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
    """The broker setting that a topic's default comes from."""
    synonyms = [synonym.setting for synonym in TOPIC_SYNONYMS[topic_setting]]
    return next((setting for setting in synonyms if values[setting] is not None), synonyms[-1])


CHECKS: tuple[Callable[[Values], None], ...] = (
    check_log_directories,
    check_metadata_directory,
    check_controller_listeners,
    check_controller_alone,
    check_broker_listeners,
    check_quorum,
    check_retention,
    check_compaction_lag,
    check_offsets_codec,
    check_consumer_groups,
    *(partial(check_topic_default, setting=setting) for setting in TOPIC_SETTINGS.values()),
)
