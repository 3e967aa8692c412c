"""The effective settings of brokers and topics: dynamic settings of the image override those of the
node's file, which override the defaults. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.config.node import NodeConfig
from penstock.config.setting import ConfigSource, InvalidSettingError, Setting
from penstock.config.topic import LogConfig, build_log_config, in_topic_units
from penstock.config.topic_settings import TOPIC_SETTINGS, TOPIC_SYNONYMS
from penstock.metadata.image import BROKER, MetadataImage

T = TypeVar("T")

_NO_CONFIGS: Mapping[str, str] = {}
_TOPIC_SETTINGS_BY_NAME = sorted(TOPIC_SETTINGS.items())


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """The value of a topic setting as DescribeConfigs shows it."""

    setting: Setting[Any]
    value: str | None
    source: ConfigSource


@dataclass(slots=True)
class _Resolved:
    """What was resolved so far for one pair of dynamic layers. Filled on demand."""

    settings: dict[str, tuple[Any, ConfigSource]] = field(default_factory=dict)
    topic_defaults: dict[str, tuple[Any, ConfigSource]] = field(default_factory=dict)
    shown_topic_defaults: list[EffectiveSetting] = field(default_factory=list)
    default_log_config: LogConfig | None = None


class DynamicBrokerConfig:
    """The settings of a broker at an image. Each setting is resolved once."""

    def __init__(
        self, image: MetadataImage, config: NodeConfig, resolved: _Resolved | None = None
    ) -> None:
        self.image = image
        self.config = config
        self._layers = _layers(image, config)
        self._resolved = _Resolved() if resolved is None else resolved

    def at(self, image: MetadataImage) -> DynamicBrokerConfig:
        """Return the settings at another image, with what was resolved if it still holds.

        Images share unchanged mappings, so identity tells whether the dynamic settings changed.
        """
        if image is self.image:
            return self
        is_same = all(
            before is after
            for (_source, before), (_same_source, after) in zip(
                self._layers, _layers(image, self.config), strict=True
            )
        )
        return DynamicBrokerConfig(image, self.config, self._resolved if is_same else None)

    def __getitem__(self, setting: Setting[T], /) -> T:
        return self.find(setting)[0]

    def is_set(self, setting: Setting[Any], /) -> bool:
        return self.find(setting)[1] is not ConfigSource.DEFAULT

    def find(self, setting: Setting[T]) -> tuple[T, ConfigSource]:
        """Return the value of a broker setting, and its source."""
        resolved = self._resolved.settings.get(setting.name)
        if resolved is None:
            resolved = self._resolved.settings[setting.name] = self._resolve(setting)
        return resolved

    def _resolve(self, setting: Setting[T]) -> tuple[T, ConfigSource]:
        for source, configs in self._layers:
            text = configs.get(setting.name)
            if text is not None:
                try:
                    return setting.parse(text), source
                except InvalidSettingError:
                    # Another release accepted it. As in Kafka, an invalid value is ignored.
                    continue
        source = ConfigSource.STATIC_BROKER if self.config.is_set(setting) else ConfigSource.DEFAULT
        return self.config[setting], source

    # Topics

    def topic_default(self, setting: Setting[T]) -> T:
        """Return the value of a topic setting for a topic without an override."""
        return self._find_topic_default(setting)[0]

    def _find_topic_default(self, setting: Setting[T]) -> tuple[T, ConfigSource]:
        """The first synonym with a value determines the value and its source."""
        default = self._resolved.topic_defaults.get(setting.name)
        if default is None:
            default = setting.default_value(), ConfigSource.DEFAULT
            for synonym in TOPIC_SYNONYMS[setting.name]:
                value, source = self.find(synonym.setting)
                if value is not None:
                    default = in_topic_units(setting, synonym, value), source
                    break
            self._resolved.topic_defaults[setting.name] = default
        return default

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the settings of a topic's logs. Raises KafkaError INVALID_CONFIG for overrides
        that are invalid."""
        if not overrides and self._resolved.default_log_config is not None:
            return self._resolved.default_log_config
        defaults = {name: self.topic_default(setting) for name, setting in TOPIC_SETTINGS.items()}
        config = build_log_config(defaults, overrides)
        if not overrides:
            self._resolved.default_log_config = config
        return config

    def topic_settings(self, overrides: Mapping[str, str]) -> list[EffectiveSetting]:
        """Return every setting of a topic by name. Internal settings appear only if overridden."""
        if not self._resolved.shown_topic_defaults:
            for _name, setting in _TOPIC_SETTINGS_BY_NAME:
                value, source = self._find_topic_default(setting)
                self._resolved.shown_topic_defaults.append(
                    EffectiveSetting(setting, setting.format(value), source)
                )
        return [
            EffectiveSetting(
                default.setting, overrides[default.setting.name], ConfigSource.DYNAMIC_TOPIC
            )
            if default.setting.name in overrides
            else default
            for default in self._resolved.shown_topic_defaults
            if default.setting.name in overrides or not default.setting.internal
        ]


def _layers(
    image: MetadataImage, config: NodeConfig
) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
    """Return the dynamic settings of the broker and those of all brokers, highest first."""
    configs = image.configs
    return (
        (ConfigSource.DYNAMIC_BROKER, configs.get((BROKER, str(config.node_id)), _NO_CONFIGS)),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, configs.get((BROKER, ""), _NO_CONFIGS)),
    )


class DynamicBrokerConfigs:
    """The settings of one broker at successive images. Keeps the latest, so that most requests
    resolve no setting again."""

    def __init__(self, config: NodeConfig) -> None:
        self._latest = DynamicBrokerConfig(MetadataImage.empty(), config)

    def at(self, image: MetadataImage) -> DynamicBrokerConfig:
        self._latest = self._latest.at(image)
        return self._latest
