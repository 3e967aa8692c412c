"""A node: its metadata, its partitions, and what handlers ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from penstock.config import log_settings, node_settings
from penstock.config.node import NodeConfig
from penstock.config.topic import LogConfig, log_config
from penstock.controller.brokers import register_broker, unfence_broker
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.dynamic import DynamicBroker
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition, uuid_text
from penstock.log.directory import LogDirectory
from penstock.log.store import LogStore
from penstock.metadata.image import BROKER, TOPIC, MetadataDelta, MetadataImage, TopicImage
from penstock.node.metadata_log import MetadataLog, metadata_log_config
from penstock.node.partition import Partition
from penstock.node.upkeep import Upkeep
from penstock.protocol.internal.metadata_settings import FeatureLevelRecord
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest
from penstock.world import World

R = TypeVar("R")
# The metadata.version of Kafka 4.3: which records the metadata log may hold.
METADATA_VERSION, METADATA_LEVEL = "metadata.version", 30

logger = logging.getLogger(__name__)


class Advertised(NamedTuple):
    """A broker as a client is told of it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Node:
    """`start` it, serve, and `stop` it."""

    def __init__(self, world: World, config: NodeConfig, cluster_id: str, directories: list[LogDirectory]) -> None:
        self.world = world
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = config.node_id
        self.store = LogStore(world, directories)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.context = ControllerContext.of(config, world.chance.uuid)
        # Listener name -> port, told by the server once it listens: port 0 in the settings takes a free one.
        self.ports: dict[str, int] = {}
        metadata_directory = next(d for d in directories if d.path == config.metadata_log_dir)
        self._metadata = MetadataLog(world, metadata_directory, self.node_id, cluster_id, self._apply)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: asyncio.Future[None] | None = None
        self._producer_ids = range(0)
        self._producer_ids_lock = asyncio.Lock()
        self._upkeep = Upkeep(self)
        self._broker_epoch = -1

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    # Life

    async def start(self) -> None:
        """Reads the metadata, then opens the logs it tells of."""
        self._failure = asyncio.get_running_loop().create_future()
        await self._metadata.open(metadata_log_config(self.config[log_settings.LOG_SEGMENT_BYTES]))
        await self.store.open(self._config_of_stored)
        self._set_strays_aside()
        for topic in self.image.topics.values():
            self._open_partitions(topic)
        await self._metadata.lead()

    async def register(self, ports: dict[str, int]) -> None:
        """The node is known to the cluster, and so to clients, under the ports that it listens on."""
        self.ports = ports
        if not self.image.features:
            await self._metadata.append((FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL),))
        registration = self._registration()
        registered = await self.decide(lambda image: register_broker(image, registration, cluster_id=self.cluster_id))
        self._broker_epoch = registered.broker_epoch
        await self.decide(lambda image: unfence_broker(image, self.node_id))
        self.spawn(self._upkeep.run())

    def _registration(self) -> BrokerRegistrationRequest:
        listeners = tuple(
            BrokerRegistrationRequest.Listener(
                name=listener.name, host=listener.host or "localhost", port=listener.port or self.ports.get(listener.name, 0)
            )
            for listener in self.config.advertised_broker_listeners
        )
        feature = BrokerRegistrationRequest.Feature(
            name=METADATA_VERSION, min_supported_version=METADATA_LEVEL, max_supported_version=METADATA_LEVEL
        )
        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.world.chance.uuid(),
            listeners=listeners,
            features=(feature,),
            rack=self.config[node_settings.BROKER_RACK],
            log_dirs=tuple(directory.id for directory in self.store.online),
        )

    async def wait_failed(self) -> None:
        """Returns never, or raises what the node cannot go on after."""
        assert self._failure is not None
        await self._failure

    async def stop(self) -> None:
        """A clean shutdown: everything is on disk, and marked to be."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._metadata.close()
        await self.store.save_high_watermarks({name: partition.high_watermark for name, partition in self.partitions.items()})
        await self.store.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the node's own. If it fails, the node stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    # What handlers ask

    def topic(self, name: str = "", topic_id: UUID = NO_UUID) -> TopicImage:
        found = self.image.topics.get(name or self.image.topic_names.get(topic_id, ""))
        if found is not None:
            return found
        if name or topic_id == NO_UUID:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {uuid_text(topic_id)}")

    def partition(self, topic: TopicImage, index: int) -> Partition:
        partition = self.partitions.get(TopicPartition(topic.name, index))
        if partition is not None:
            if partition.directory.failure is not None:
                raise partition.directory.offline()
            return partition
        if index not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {index}")
        reason = self.store.damaged.get(TopicPartition(topic.name, index), "its log directory is offline")
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} cannot be served: {reason}")

    def topic_config(self, name: str) -> LogConfig:
        """The topic's own settings over those of the broker, altered ones included."""
        return log_config(DynamicBroker(self.image, self.config), self.image.topic_configs(name))

    async def decide(self, decide: Callable[[MetadataImage], Decision[R]]) -> R:
        """Decides on the pending image, so that two quick requests cannot both win; answers when the records are committed."""
        decision = decide(self._metadata.pending)
        if decision.records:
            await self._metadata.append(decision.records)
        return decision.response

    async def next_producer_id(self) -> int:
        # Loaded when first needed, as handlers are: a node must start quickly.
        from penstock.controller.producer_ids import allocate_producer_ids
        from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        async with self._producer_ids_lock:
            if not self._producer_ids:
                request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self._broker_epoch)
                block = await self.decide(lambda image: allocate_producer_ids(image, request))
                if block.error_code:
                    raise KafkaError(ErrorCode(block.error_code), "no producer ids can be had")
                self._producer_ids = range(block.producer_id_start, block.producer_id_start + block.producer_id_len)
            self._producer_ids, taken = self._producer_ids[1:], self._producer_ids[0]
            return taken

    async def create_missing(self, names: list[str]) -> dict[str, KafkaError | None]:
        """Topics that a client asks for, made with the defaults. What went wrong with each."""
        from penstock.controller.create_topics import create_topics
        from penstock.protocol.messages.create_topics import CreateTopicsRequest

        wanted = tuple(CreateTopicsRequest.Topic(name=name, num_partitions=-1, replication_factor=-1) for name in dict.fromkeys(names))
        response = await self.decide(lambda image: create_topics(image, CreateTopicsRequest(topics=wanted), node=self.context))
        return {
            topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message or "") if topic.error_code else None
            for topic in response.topics
        }

    def advertised(self, listener_name: str, local_host: str) -> list[Advertised]:
        """Every broker as a client of this listener reaches it. A wildcard address is answered with the one by which the client came."""
        told = {listener.name: listener for listener in self.config.advertised_broker_listeners}
        listener = told.get(listener_name)
        if listener is None:
            return []
        host = listener.host if listener.host not in (None, "", "0.0.0.0", "::") else local_host
        port = listener.port or self.ports.get(listener_name, 0)
        return [Advertised(self.node_id, host or local_host, port, self.config[node_settings.BROKER_RACK])]

    # Metadata becomes logs

    def _config_of_stored(self, partition: TopicPartition) -> LogConfig:
        return self.topic_config(partition.topic)

    def _set_strays_aside(self) -> None:
        """Logs of topics that are not there any more, or are there anew under another id."""
        for partition, log in list(self.store.logs.items()):
            topic = self.image.topics.get(partition.topic)
            known = topic is not None and partition.partition in topic.partitions and log.topic_id in (topic.id, NO_UUID)
            if not known:
                logger.warning("%s belongs to no topic of the cluster (it was deleted), and is removed", log.path)
                self.store.delete(partition)

    def _apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        for before, after in delta.topics.values():
            if before is not None and (after is None or after.id != before.id):
                self._drop_partitions(before)
            if after is not None:
                self._open_partitions(after)
        broker_changed = any(kind == BROKER for kind, _name in delta.configs)
        changed = image.topics if broker_changed else {name for kind, name in delta.configs if kind == TOPIC and name in image.topics}
        for name in changed:
            config = self.topic_config(name)
            for index in image.topics[name].partitions:
                partition = self.partitions.get(TopicPartition(name, index))
                if partition is not None:
                    partition.config = config

    def _open_partitions(self, topic: TopicImage) -> None:
        config = self.topic_config(topic.name)
        for index, state in topic.partitions.items():
            name = TopicPartition(topic.name, index)
            if name in self.partitions:
                self.partitions[name].leader_epoch = state.leader_epoch
            if self.node_id not in state.replicas or name in self.partitions or name in self.store.damaged:
                continue
            try:
                log = self.store.logs.get(name) or self.store.create(name, topic.id, config)
            except KafkaError as error:
                logger.error("%s cannot be served: %s", name, error.message)
                continue
            self.partitions[name] = Partition(log, self.world, state.leader_epoch, self.spawn)

    def _drop_partitions(self, topic: TopicImage) -> None:
        for index in topic.partitions:
            name = TopicPartition(topic.name, index)
            partition = self.partitions.pop(name, None)
            if partition is not None:
                partition.abandon()
            if name in self.store.logs:
                self.store.delete(name)
