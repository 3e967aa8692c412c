"""The cluster's metadata as this node has replayed it, and waiting for it to change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.config.node import NodeConfig
from penstock.config.topic import LogConfig
from penstock.controller.configs.effective import DynamicBrokerConfig, DynamicBrokerConfigs
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import uuid_text
from penstock.metadata.image import MetadataDelta, MetadataImage, TopicImage, delta_steps
from penstock.world import Clock

logger = logging.getLogger(__name__)

# This node replays the record of a new topic within milliseconds of the controller's response. If
# it takes longer than this, something else is wrong.
_TOPIC_REPLAY_TIMEOUT_S = 2.0
# The longest that a metadata request waits for an election, and how often it checks for the result.
_ELECTION_TIMEOUT_S = 1.0
_ELECTION_POLL_S = 0.005
# Clients still see a fenced broker for this long: librdkafka takes a second longer to find the new
# leader of a partition whose old leader is missing from the metadata.
_ADVERTISE_FENCED_S = 5.0


class Advertised(NamedTuple):
    """A broker's endpoint as a client of one listener sees it."""

    node_id: int
    host: str
    port: int
    rack: str | None


async def delta_in_turns(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """Compare two images, which may have 100,000 topics. The event loop runs between bounded parts;
    images of a few thousand partitions are compared at once."""
    steps = delta_steps(before, after)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            delta: MetadataDelta = end.value
            return delta
        await asyncio.sleep(0)


class MetadataView:
    """`image` is the newest committed image. The parts of the node may still be applying it.

    For each change the quorum calls `apply`, then the other parts replay it, then `notify` wakes
    the waiters. `is_disconnected` tells if this node fetches from a broker and has no connection to
    it.
    """

    def __init__(
        self, clock: Clock, config: NodeConfig, is_disconnected: Callable[[int], bool]
    ) -> None:
        self.image = MetadataImage.empty()
        self._clock = clock
        self._config = config
        self._broker_configs = DynamicBrokerConfigs(config)
        self._is_disconnected = is_disconnected
        self._changed = asyncio.Event()
        self._sorted: tuple[Mapping[UUID, str], list[str]] = self.image.topic_names, []
        self._unfenced: set[int] = set()
        # Time at which an unfenced broker was fenced.
        self._fenced_at: dict[int, float] = {}

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.image = image
        for broker_id in delta.brokers:
            if broker_id in image.brokers and not image.brokers[broker_id].fenced:
                self._unfenced.add(broker_id)
                self._fenced_at.pop(broker_id, None)
            elif broker_id in self._unfenced:
                self._unfenced.discard(broker_id)
                self._fenced_at[broker_id] = self._clock.monotonic()

    def notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # Topics and configs

    def topic(self, name: str = "", topic_id: UUID | None = None) -> TopicImage:
        """Return the topic with this name, or with this id if the name is empty."""
        if name or topic_id is None:
            topic = self.image.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        else:
            topic = self.image.topics.get(self.image.topic_names.get(topic_id, ""))
            if topic is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {uuid_text(topic_id)}"
                )
        return topic

    def topic_config(self, name: str) -> LogConfig:
        """Return the topic's configs, with this broker's dynamic and static configs as defaults."""
        return self.broker_config.log_config(self.image.topic_configs(name))

    @property
    def sorted_topic_names(self) -> list[str]:
        """The names of all topics. They are sorted when topics were created or deleted."""
        topic_names, names = self._sorted
        if topic_names is not self.image.topic_names:
            names = sorted(self.image.topics)
            self._sorted = self.image.topic_names, names
        return names

    @property
    def broker_config(self) -> DynamicBrokerConfig:
        """This broker's configs, with dynamic values before static ones."""
        return self._broker_configs.at(self.image)

    # Brokers

    def advertised(
        self, listener_name: str, local_host: str, *, fenced: bool = False
    ) -> list[Advertised]:
        """Return the endpoints of all live brokers on a listener, and with `fenced` those of fenced
        brokers.

        If this broker's listener has a wildcard host, its endpoint is the local address of the
        client's connection.
        """
        recently = self._clock.monotonic() - _ADVERTISE_FENCED_S
        wildcard = any(
            listener.name == listener_name and listener.host in (None, "", "0.0.0.0", "::")
            for listener in self._config.advertised_broker_listeners
        )
        return [
            Advertised(
                broker.id,
                local_host if wildcard and broker.id == self._config.node_id else endpoint.host,
                endpoint.port,
                broker.rack,
            )
            for broker in self.image.brokers.values()
            if fenced or not broker.fenced or self._fenced_at.get(broker.id, 0.0) > recently
            for endpoint in broker.endpoints
            if endpoint.name == listener_name
        ]

    def broker_address(self, broker_id: int) -> tuple[str, int] | None:
        """Return a broker's endpoint on the inter-broker listener."""
        broker = self.image.brokers.get(broker_id)
        for endpoint in broker.endpoints if broker is not None else ():
            if endpoint.name == self._config.inter_broker_listener_name:
                return endpoint.host, endpoint.port
        return None

    # Waiting

    async def wait_unfenced(self, broker_id: int) -> None:
        """Return when the image has the broker as unfenced. It may have been unregistered."""
        while (broker := self.image.brokers.get(broker_id)) is None or broker.fenced:
            await self._changed.wait()

    async def wait_topics(self, names: Iterable[str]) -> None:
        """Return when the image has all of these new topics, or after a timeout: a topic may have
        been deleted again."""
        try:
            async with asyncio.timeout(_TOPIC_REPLAY_TIMEOUT_S):
                for name in names:
                    while name not in self.image.topics:
                        await self._changed.wait()
        except TimeoutError:
            logger.warning(
                "a new topic is not in this node's metadata after %g s", _TOPIC_REPLAY_TIMEOUT_S
            )

    async def wait_until(self, holds: Callable[[MetadataImage], bool]) -> None:
        """Return when something that the controller has committed holds for the image that this
        node has applied, or after a timeout: it may have been changed again."""
        try:
            async with asyncio.timeout(_TOPIC_REPLAY_TIMEOUT_S):
                while not holds(self.image):
                    await self._changed.wait()
        except TimeoutError:
            logger.warning(
                "a committed change is not in this node's metadata after %g s",
                _TOPIC_REPLAY_TIMEOUT_S,
            )

    async def wait_leaders(self, names: Iterable[str]) -> None:
        """Return when no partition of these topics has a leader that is disconnected from this
        broker, or after a timeout.

        A client that loses its leader requests metadata immediately. If the response names the same
        leader, librdkafka waits a second before it asks again. It is faster to delay the response
        until the election is over.
        """
        deadline = self._clock.monotonic() + _ELECTION_TIMEOUT_S
        for name in names:
            while self.has_disconnected_leader([name]) and self._clock.monotonic() < deadline:
                await asyncio.sleep(_ELECTION_POLL_S)

    def has_disconnected_leader(self, names: Iterable[str]) -> bool:
        """Return True if a partition of these topics has a leader that is disconnected from this
        broker."""
        disconnected = {broker for broker in self.image.brokers if self._is_disconnected(broker)}
        if not disconnected:
            return False
        topics = (self.image.topics.get(name) for name in names)
        return any(
            state.leader in disconnected
            for topic in topics
            if topic is not None
            for state in topic.partitions.values()
        )
