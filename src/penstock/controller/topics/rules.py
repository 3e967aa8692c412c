"""The settings of a topic that decide who may lead its partitions. PURE.

Worked out once for each topic: a broker that dies may take part in ten thousand partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from penstock.config.setting import Setting
from penstock.config.topic import broker_default
from penstock.config.topic_settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE
from penstock.controller.configs.effective import DynamicBroker
from penstock.controller.context import ControllerContext
from penstock.controller.features.features import elr_enabled
from penstock.metadata.image import MetadataImage, TopicImage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicRules:
    """`elr`: members that leave the in-sync replicas below `min_isr` stay eligible to lead
    (KIP-966)."""

    min_isr: int
    unclean: bool
    elr: bool


class AllTopicRules:
    """Topic over cluster over the controller's own file."""

    def __init__(self, image: MetadataImage, node: ControllerContext) -> None:
        broker = DynamicBroker(image, node.broker)
        self._image = image
        self._elr = elr_enabled(image)
        self._min_isr = broker_default(broker, MIN_INSYNC_REPLICAS)
        self._unclean = broker_default(broker, UNCLEAN_LEADER_ELECTION_ENABLE)
        self._known: dict[UUID, TopicRules] = {}

    def of(self, topic: TopicImage) -> TopicRules:
        rules = self._known.get(topic.id)
        if rules is None:
            rules = self._known[topic.id] = self._work_out(topic)
        return rules

    def _work_out(self, topic: TopicImage) -> TopicRules:
        factor = len(topic.partitions[0].replicas)
        min_isr = self._setting(topic, MIN_INSYNC_REPLICAS, self._min_isr)
        return TopicRules(
            min(min_isr, factor),
            self._setting(topic, UNCLEAN_LEADER_ELECTION_ENABLE, self._unclean),
            self._elr,
        )

    def _setting(self, topic: TopicImage, setting: Setting[T], default: T) -> T:
        text = self._image.topic_configs(topic.name).get(setting.name)
        return default if text is None else setting.parse(text)
