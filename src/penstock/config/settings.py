"""The table of all settings of a node by name, and the settings of Kafka that are not supported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any

from penstock.config import (
    authorizer_settings,
    cleaner_settings,
    cluster_settings,
    delegation_token_settings,
    group_settings,
    log_output_settings,
    log_settings,
    metrics_settings,
    node_settings,
    oauthbearer_settings,
    quota_settings,
    sasl_settings,
    ssl_settings,
    transaction_settings,
)
from penstock.config.listeners import listener_setting
from penstock.config.setting import Setting


def _settings_of(*modules: ModuleType) -> dict[str, Setting[Any]]:
    return {
        value.name: value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Setting)
    }


NODE_SETTINGS: Mapping[str, Setting[Any]] = MappingProxyType(
    _settings_of(
        node_settings,
        log_settings,
        cleaner_settings,
        cluster_settings,
        group_settings,
        transaction_settings,
        metrics_settings,
        log_output_settings,
        authorizer_settings,
        sasl_settings,
        oauthbearer_settings,
        ssl_settings,
        delegation_token_settings,
        quota_settings,
    )
)


@dataclass(frozen=True, slots=True)
class UnsupportedSetting:
    """Settings of Kafka that Penstock does not support.

    `pattern` matches their names. `allowed` are the values, in lower case, that have no effect.
    """

    pattern: str
    reason: str
    allowed: tuple[str, ...] = ("",)

    def refusal(self, name: str, value: str) -> str | None:
        """Return the reason why the value is refused; None if it has no effect."""
        if value.strip().lower() in self.allowed:
            return None
        return f"{name} is not supported: {self.reason}."


# Settings that a listener may have a value of its own for.
_PER_LISTENER: Mapping[str, Setting[Any]] = MappingProxyType(
    {
        setting.name: setting
        for setting in (node_settings.MAX_CONNECTIONS, *sasl_settings.PER_LISTENER)
    }
    | dict(ssl_settings.SSL_SETTINGS)
)
_LISTENER_SETTING = re.compile(r"listener\.name\.([0-9a-z_\-]+)\.(.+)", re.ASCII)

_JAVA_TLS = "it chooses a part of Java's TLS, and Penstock uses OpenSSL. Remove the setting"
_JAVA_CLASS = "it names a Java class, which Penstock cannot run. Remove the setting"

_UNSUPPORTED = (
    UnsupportedSetting(
        "zookeeper.*",
        "like Kafka since 4.0, Penstock stores metadata in a quorum of controllers instead of "
        "ZooKeeper. Use process.roles, node.id, controller.listener.names and "
        "controller.quorum.voters or controller.quorum.bootstrap.servers",
        allowed=(),
    ),
    UnsupportedSetting("ssl.engine.factory.class", _JAVA_CLASS),
    UnsupportedSetting("ssl.keymanager.algorithm", _JAVA_TLS, allowed=("", "sunx509", "pkix")),
    UnsupportedSetting("ssl.trustmanager.algorithm", _JAVA_TLS, allowed=("", "pkix")),
    UnsupportedSetting("ssl.secure.random.implementation", _JAVA_TLS),
    UnsupportedSetting("ssl.*", _JAVA_TLS),
    UnsupportedSetting(
        "sasl.kerberos.*",
        "Kerberos (GSSAPI) is not supported. Use SCRAM-SHA-512 or PLAIN, and remove the setting",
        allowed=(),
    ),
    UnsupportedSetting(
        "sasl.*", "this SASL setting is not available yet. Remove the setting", allowed=()
    ),
    UnsupportedSetting(
        "listener.name.*", "this setting per listener is not available yet. Remove it", allowed=()
    ),
    UnsupportedSetting("security.providers", _JAVA_CLASS),
    UnsupportedSetting("principal.builder.class", _JAVA_CLASS),
    UnsupportedSetting("client.quota.callback.class", _JAVA_CLASS),
    UnsupportedSetting("create.topic.policy.class.name", _JAVA_CLASS),
    UnsupportedSetting("alter.config.policy.class.name", _JAVA_CLASS),
    UnsupportedSetting(
        "config.providers",
        "values cannot refer to other sources. Remove the setting",
    ),
    UnsupportedSetting(
        "remote.log.storage.system.enable",
        "tiered storage is not available yet. Remove the setting or set it to false",
        allowed=("", "false"),
    ),
    UnsupportedSetting(
        "remote.storage.enable",
        "tiered storage is not available yet. Remove the setting or set it to false",
        allowed=("", "false"),
    ),
    UnsupportedSetting(
        "control.plane.listener.name",
        "KRaft has no control plane listener. Use controller.listener.names",
    ),
)


def find_setting(name: str) -> Setting[Any] | None:
    """Return the setting with a name, which may be that of a listener's own value."""
    if name in NODE_SETTINGS:
        return NODE_SETTINGS[name]
    match = _LISTENER_SETTING.fullmatch(name)
    if match is None:
        return None
    if match[2] in _PER_LISTENER:
        return listener_setting(match[1], _PER_LISTENER[match[2]])
    return sasl_settings.find_mechanism_setting(match[1], match[2])


@lru_cache(1_000)
def find_unsupported(name: str) -> UnsupportedSetting | None:
    """Return the entry for an unsupported setting.

    Such settings are refused instead of ignored: the requested behaviour would be missing.
    """
    return next((entry for entry in _UNSUPPORTED if fnmatchcase(name, entry.pattern)), None)
