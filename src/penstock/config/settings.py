"""The one table of what can be set on a node, by name. The settings themselves are in
`node_settings`, `log_settings`, `cluster_settings` and `group_settings`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from penstock.config import cluster_settings, group_settings, log_settings, node_settings
from penstock.config.setting import Setting


def _settings_of(module: ModuleType) -> dict[str, Setting[Any]]:
    return {value.name: value for value in vars(module).values() if isinstance(value, Setting)}


NODE_SETTINGS: Mapping[str, Setting[Any]] = MappingProxyType(
    _settings_of(node_settings)
    | _settings_of(log_settings)
    | _settings_of(cluster_settings)
    | _settings_of(group_settings)
)
