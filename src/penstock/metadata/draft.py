"""An image in the making: copies a part of the old one when it is first changed, and remembers what
was touched. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.errors import InvariantBroken
from penstock.ids import uuid_text
from penstock.metadata.image import (
    BrokerImage,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.protocol.internal.metadata_nodes import RegisterControllerRecord


class Draft:
    """Lives as long as one replay. Read the mappings as you like; change them by the methods
    alone."""

    def __init__(self, image: MetadataImage) -> None:
        self._before = image
        self._topics: dict[str, TopicImage] | None = None
        self._topic_names: dict[UUID, str] | None = None
        self._brokers: dict[int, BrokerImage] | None = None
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._features: dict[str, int] | None = None
        self._controllers: dict[int, RegisterControllerRecord] | None = None
        self._kept: dict[tuple[object, ...], object] | None = None
        # Partitions of a topic that this draft may change in place.
        self._own: dict[UUID, dict[int, PartitionState]] = {}
        self._touched_topics: dict[UUID, None] = {}
        self._touched_configs: set[ConfigResource] = set()
        self._touched_brokers: set[int] = set()
        self.next_producer_id = image.next_producer_id

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._before.topics if self._topics is None else self._topics

    @property
    def topic_names(self) -> Mapping[UUID, str]:
        return self._before.topic_names if self._topic_names is None else self._topic_names

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        return self._before.brokers if self._brokers is None else self._brokers

    @property
    def configs(self) -> Mapping[ConfigResource, Mapping[str, str]]:
        return self._before.configs if self._configs is None else self._configs

    def topic(self, topic_id: UUID) -> TopicImage:
        name = self.topic_names.get(topic_id)
        if name is None:
            raise InvariantBroken(
                f"a metadata record is about topic {uuid_text(topic_id)}, which does not exist"
            )
        return self.topics[name]

    def add_topic(self, topic: TopicImage) -> None:
        topics, names = self._edit_topics()
        topics[topic.name] = topic
        names[topic.id] = topic.name
        self._touched_topics[topic.id] = None

    def remove_topic(self, topic: TopicImage) -> None:
        topics, names = self._edit_topics()
        del topics[topic.name], names[topic.id]
        self._own.pop(topic.id, None)
        self._touched_topics[topic.id] = None

    def partitions_of(self, topic: TopicImage) -> dict[int, PartitionState]:
        """The topic's partitions, to be changed in place."""
        own = self._own.get(topic.id)
        if own is None:
            own = self._own[topic.id] = dict(topic.partitions)
            self.add_topic(TopicImage(topic.name, topic.id, own))
        return own

    def _edit_topics(self) -> tuple[dict[str, TopicImage], dict[UUID, str]]:
        if self._topics is None or self._topic_names is None:
            self._topics, self._topic_names = (
                dict(self._before.topics),
                dict(self._before.topic_names),
            )
        return self._topics, self._topic_names

    def set_broker(self, broker_id: int, broker: BrokerImage | None) -> None:
        if self._brokers is None:
            self._brokers = dict(self._before.brokers)
        if broker is None:
            del self._brokers[broker_id]
        else:
            self._brokers[broker_id] = broker
        self._touched_brokers.add(broker_id)

    def set_config(self, resource: ConfigResource, values: Mapping[str, str]) -> None:
        if self._configs is None:
            self._configs = dict(self._before.configs)
        if values:
            self._configs[resource] = values
        else:
            self._configs.pop(resource, None)
        self._touched_configs.add(resource)

    def edit_features(self) -> dict[str, int]:
        if self._features is None:
            self._features = dict(self._before.features)
        return self._features

    def edit_controllers(self) -> dict[int, RegisterControllerRecord]:
        if self._controllers is None:
            self._controllers = dict(self._before.controllers)
        return self._controllers

    def edit_kept(self) -> dict[tuple[object, ...], object]:
        if self._kept is None:
            self._kept = dict(self._before.kept)
        return self._kept

    def finish(
        self, offset: int, open_transaction: tuple[object, ...] | None
    ) -> tuple[MetadataImage, MetadataDelta]:
        self._order_partitions()
        before = self._before
        image = MetadataImage(
            offset=offset,
            topics=self.topics,
            topic_names=self.topic_names,
            brokers=self.brokers,
            configs=self.configs,
            features=before.features if self._features is None else self._features,
            next_producer_id=self.next_producer_id,
            controllers=before.controllers if self._controllers is None else self._controllers,
            kept=before.kept if self._kept is None else self._kept,
            open_transaction=open_transaction,
        )
        changes = {
            topic_id: (before.topic_by_id(topic_id), image.topic_by_id(topic_id))
            for topic_id in self._touched_topics
        }
        topics = {
            topic_id: change for topic_id, change in changes.items() if change != (None, None)
        }
        return image, MetadataDelta(
            topics, frozenset(self._touched_configs), frozenset(self._touched_brokers)
        )

    def _order_partitions(self) -> None:
        """Kafka may have written them in any order; whoever lists them wants theirs."""
        for own in self._own.values():
            if any(index != position for position, index in enumerate(own)):
                ordered = sorted(own.items())
                own.clear()
                own.update(ordered)
