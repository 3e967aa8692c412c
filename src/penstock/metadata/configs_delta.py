"""Replays the records of settings and feature levels (Kafka's `ConfigurationsDelta` and
`FeaturesDelta`). PURE."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from penstock.metadata.image import TOPIC, ConfigResource, MetadataImage
from penstock.metadata.layered_map import next_version, settled
from penstock.protocol.internal.metadata_settings import ConfigRecord, FeatureLevelRecord


class ConfigurationsDelta:
    """Makes the next version of the settings on the first change, and records whose settings
    changed."""

    def __init__(self, image: MetadataImage) -> None:
        self.changed_resources: set[ConfigResource] = set()
        self._image = image
        self._configs: MutableMapping[ConfigResource, Mapping[str, str]] | None = None

    @property
    def configs(self) -> Mapping[ConfigResource, Mapping[str, str]]:
        return self._image.configs if self._configs is None else self._configs

    def settled_configs(self) -> Mapping[ConfigResource, Mapping[str, str]]:
        return self._image.configs if self._configs is None else settled(self._configs)

    def replay_config(self, record: ConfigRecord) -> None:
        """A record without a value removes the setting."""
        resource = (record.resource_type, record.resource_name)
        values = dict(self.configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self._put(resource, values)

    def delete_topic(self, name: str) -> None:
        if (TOPIC, name) in self.configs:
            self._put((TOPIC, name), {})

    def _put(self, resource: ConfigResource, values: Mapping[str, str]) -> None:
        if self._configs is None:
            self._configs = next_version(self._image.configs)
        if values:
            self._configs[resource] = values
        else:
            self._configs.pop(resource, None)
        self.changed_resources.add(resource)


class FeaturesDelta:
    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._features: dict[str, int] | None = None

    @property
    def features(self) -> Mapping[str, int]:
        return self._image.features if self._features is None else self._features

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        """Level 0 disables a feature, which is the same as its absence."""
        if self._features is None:
            self._features = dict(self._image.features)
        if record.feature_level == 0:
            self._features.pop(record.name, None)
        else:
            self._features[record.name] = record.feature_level
