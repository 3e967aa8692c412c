"""Configs as DescribeConfigs shows them: value, source and synonyms.

The synonyms of a config are all values that it has from any source, the effective one first.
Kafka's order of sources is: dynamic config of this broker, dynamic default of all brokers, static
config in server.properties, default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Any, NamedTuple

from penstock.config.group_settings import GROUP_SETTINGS
from penstock.config.setting import (
    ConfigSource,
    Dynamic,
    Importance,
    Required,
    Setting,
    SettingType,
)
from penstock.config.settings import NODE_SETTINGS
from penstock.config.topic_settings import TOPIC_SYNONYMS
from penstock.controller.configs.effective import DynamicBrokerConfig, EffectiveSetting
from penstock.metadata.image import BROKER, GROUP
from penstock.protocol.messages.describe_configs import DescribeConfigsResponse

Synonym = DescribeConfigsResponse.Result.Config.Synonym


class Entry(NamedTuple):
    setting: Setting[Any]
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]


def topic_entry(broker: DynamicBrokerConfig, effective: EffectiveSetting) -> Entry:
    setting = effective.setting
    value = None if setting.sensitive else effective.value
    own = (
        [Synonym(name=setting.name, value=value, source=effective.source)]
        if effective.source is ConfigSource.DYNAMIC_TOPIC
        else []
    )
    settings = [synonym.setting for synonym in TOPIC_SYNONYMS[setting.name]]
    synonyms = own + (_synonyms(broker, settings[0].name, settings) if settings else [])
    # As in Kafka, the source of a topic's retention.ms is DEFAULT even if server.properties has
    # log.retention.hours.
    source = ConfigSource(synonyms[0].source) if synonyms else ConfigSource.DEFAULT
    return Entry(setting, value, source, False, tuple(synonyms))


def group_entries(broker: DynamicBrokerConfig, group_id: str) -> list[Entry]:
    """Return the configs of a group, which need not exist. Configs that only another release knows
    are left out."""
    texts = broker.image.configs.get((GROUP, group_id), {})
    entries = []
    for name, own in sorted(GROUP_SETTINGS.items()):
        value = texts[name] if name in texts else own.default.format(broker[own.default])
        synonyms = _synonyms(broker, own.default.name, [own.default])
        if name in texts:
            synonyms.insert(0, Synonym(name=name, value=value, source=ConfigSource.DYNAMIC_GROUP))
        entries.append(
            Entry(own.setting, value, ConfigSource(synonyms[0].source), False, tuple(synonyms))
        )
    return entries


def broker_entries(broker: DynamicBrokerConfig) -> list[Entry]:
    entries = []
    for setting in _by_name(NODE_SETTINGS):
        value, source = broker.find(setting)
        if not setting.internal or source is not ConfigSource.DEFAULT:
            synonyms = tuple(
                _synonyms(broker, setting.name, _FAMILIES.get(setting.name, (setting,)))
            )
            entries.append(
                Entry(
                    setting,
                    setting.format(value),
                    source,
                    setting.dynamic is Dynamic.READ_ONLY,
                    synonyms,
                )
            )
    configs = broker.image.configs
    dynamic = {
        *configs.get((BROKER, str(broker.config.node_id)), {}),
        *configs.get((BROKER, ""), {}),
    }
    for name in sorted(dynamic - set(NODE_SETTINGS)):
        setting = _unknown(name)
        synonyms = tuple(_synonyms(broker, name, [setting]))
        entries.append(Entry(setting, None, ConfigSource(synonyms[0].source), True, synonyms))
    return entries


def default_broker_entries(broker: DynamicBrokerConfig) -> list[Entry]:
    """Return the dynamic defaults of all brokers."""
    texts = broker.image.configs.get((BROKER, ""), {})
    entries = []
    for name in sorted(texts):
        setting = NODE_SETTINGS.get(name) or _unknown(name)
        value = None if setting.sensitive else texts[setting.name]
        synonym = Synonym(
            name=setting.name, value=value, source=ConfigSource.DYNAMIC_DEFAULT_BROKER
        )
        read_only = setting.dynamic is Dynamic.READ_ONLY
        entries.append(
            Entry(setting, value, ConfigSource.DYNAMIC_DEFAULT_BROKER, read_only, (synonym,))
        )
    return entries


def _unknown(name: str) -> Setting[str]:
    """Return a config that this release does not know. It has no default, and as in Kafka it is
    read-only and its value is not shown: it may be a password."""
    return Setting(name, SettingType.UNKNOWN, Required.REQUIRED, Importance.LOW, "")


def _by_name(settings: Mapping[str, Setting[Any]]) -> list[Setting[Any]]:
    return [settings[name] for name in sorted(settings)]


def _families() -> dict[str, tuple[Setting[Any], ...]]:
    """Return the groups of broker configs that differ by unit, such as log.retention.ms, .minutes
    and .hours."""
    families = (
        tuple(synonym.setting for synonym in synonyms)
        for synonyms in TOPIC_SYNONYMS.values()
        if len(synonyms) > 1
    )
    return {setting.name: family for family in families for setting in family}


_FAMILIES = _families()


def _synonyms(
    broker: DynamicBrokerConfig, name: str, settings: Sequence[Setting[Any]]
) -> list[Synonym]:
    """Return the synonyms of the config `name` among these settings. Kafka leaves out those before
    the first one with that name."""
    synonyms = []
    for source, texts in _layers(broker, settings):
        for setting in settings:
            text = texts.get(setting.name)
            if text is not None:
                synonyms.append(
                    Synonym(
                        name=setting.name, value=None if setting.sensitive else text, source=source
                    )
                )
    return list(dropwhile(lambda synonym: synonym.name != name, synonyms))


def _layers(
    broker: DynamicBrokerConfig, settings: Sequence[Setting[Any]]
) -> list[tuple[ConfigSource, Mapping[str, str | None]]]:
    config, configs = broker.config, broker.image.configs
    return [
        (ConfigSource.DYNAMIC_BROKER, configs.get((BROKER, str(config.node_id)), {})),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, configs.get((BROKER, ""), {})),
        (
            ConfigSource.STATIC_BROKER,
            {
                setting.name: _text(setting, config[setting])
                for setting in settings
                if config.is_set(setting)
            },
        ),
        (
            ConfigSource.DEFAULT,
            {
                setting.name: _text(setting, setting.default_value())
                for setting in settings
                if not setting.required
            },
        ),
    ]


def _text(setting: Setting[Any], value: object) -> str | None:
    """Return the value as text, empty for a password that is set."""
    return "" if setting.sensitive and value is not None else setting.format(value)
