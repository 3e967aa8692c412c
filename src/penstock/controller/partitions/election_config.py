"""The settings of topics that elections depend on. PURE.

They are resolved once per topic: the failure of a broker may change ten thousand partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from penstock.config.setting import Setting
from penstock.config.topic_settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE
from penstock.controller.decision import ControllerContext
from penstock.controller.features import elr_enabled
from penstock.metadata.image import MetadataImage, TopicImage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ElectionConfig:
    """`elr_enabled`: replicas that leave the ISR while it is below `min_isr` stay eligible to lead
    (KIP-966)."""

    min_isr: int
    unclean_enabled: bool
    elr_enabled: bool


class ElectionConfigs:
    """The ElectionConfig of each topic: its own settings, then dynamic ones of the controller's
    node, then its file."""

    def __init__(self, image: MetadataImage, context: ControllerContext) -> None:
        broker = context.broker_configs.at(image)
        self._image = image
        self._elr_enabled = elr_enabled(image)
        self._min_isr = broker.topic_default(MIN_INSYNC_REPLICAS)
        self._unclean_enabled = broker.topic_default(UNCLEAN_LEADER_ELECTION_ENABLE)
        self._configs: dict[UUID, ElectionConfig] = {}

    def of(self, topic: TopicImage) -> ElectionConfig:
        config = self._configs.get(topic.id)
        if config is None:
            config = self._configs[topic.id] = self._resolve(topic)
        return config

    def _resolve(self, topic: TopicImage) -> ElectionConfig:
        replication_factor = len(topic.partitions[0].replicas)
        min_isr = self._setting(topic, MIN_INSYNC_REPLICAS, self._min_isr)
        return ElectionConfig(
            min(min_isr, replication_factor),
            self._setting(topic, UNCLEAN_LEADER_ELECTION_ENABLE, self._unclean_enabled),
            self._elr_enabled,
        )

    def _setting(self, topic: TopicImage, setting: Setting[T], default: T) -> T:
        text = self._image.topic_configs(topic.name).get(setting.name)
        return default if text is None else setting.parse(text)
