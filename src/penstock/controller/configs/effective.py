"""The settings of a broker as they are now: what was altered while it ran comes before what its
file says. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.config import topic_settings
from penstock.config.node import NodeConfig
from penstock.config.setting import ConfigSource, InvalidSettingError, Setting
from penstock.config.topic import in_topic_units
from penstock.metadata.image import BROKER, MetadataImage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DynamicBroker:
    """A node's settings, with those of the image over those of its file. Can be used where
    `log_config` wants a broker."""

    image: MetadataImage
    config: NodeConfig
    # Dynamic configs by source, in the order of precedence. Sources without any are left out.
    _dynamic: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """A request may look up a hundred settings, so the sources are determined once."""
        sources = (
            (ConfigSource.DYNAMIC_BROKER, str(self.config.node_id)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, ""),
        )
        dynamic = ((source, self.image.configs.get((BROKER, name))) for source, name in sources)
        object.__setattr__(
            self, "_dynamic", tuple((source, texts) for source, texts in dynamic if texts)
        )

    def __getitem__(self, setting: Setting[T], /) -> T:
        return self.find(setting)[0] if self._dynamic else self.config[setting]

    def find(self, setting: Setting[T]) -> tuple[T, ConfigSource]:
        """The value and where it comes from."""
        for source, texts in self._dynamic:
            text = texts.get(setting.name)
            if text is not None:
                try:
                    return setting.parse(text), source
                except InvalidSettingError:
                    # Only another release can have let this in. As in Kafka, a value that cannot be
                    # used does not count.
                    continue
        source = ConfigSource.STATIC_BROKER if self.config.is_set(setting) else ConfigSource.DEFAULT
        return self.config[setting], source


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting of a topic as clients are shown it."""

    setting: Setting[Any]
    value: str | None
    source: ConfigSource


def effective_topic_settings(
    broker: DynamicBroker, overrides: Mapping[str, str]
) -> Iterator[EffectiveSetting]:
    """Every setting of a topic with these settings of its own, by name. The settings for tests are
    shown only where they are set."""
    for name, setting in sorted(topic_settings.TOPIC_SETTINGS.items()):
        if name in overrides:
            yield EffectiveSetting(setting, overrides[name], ConfigSource.DYNAMIC_TOPIC)
        elif not setting.internal:
            value, source = _broker_default(broker, setting)
            yield EffectiveSetting(setting, setting.format(value), source)


def _broker_default(broker: DynamicBroker, setting: Setting[Any]) -> tuple[Any, ConfigSource]:
    """Return the value of a topic setting for topics that do not set it, as `broker_default` does,
    and its source."""
    for synonym in topic_settings.TOPIC_SYNONYMS[setting.name]:
        value, source = broker.find(synonym.setting)
        if value is not None:
            return in_topic_units(setting, synonym, value), source
    return setting.default_value(), ConfigSource.DEFAULT
