"""A node: its place in the quorum, its life as a broker, and what handlers ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.config.topic import LogConfig, log_config
from penstock.controller.configs.effective import DynamicBroker
from penstock.controller.context import ControllerContext
from penstock.errors import ErrorCode, InvariantBroken, KafkaError
from penstock.ids import NO_UUID, TopicPartition, uuid_text
from penstock.log.directory import LogDirectory
from penstock.log.store import LogStore
from penstock.metadata.image import MetadataDelta, MetadataImage, TopicImage
from penstock.node.broker.channel import ControllerChannel
from penstock.node.broker.forwarding import forward
from penstock.node.broker.lifecycle import Lifecycle
from penstock.node.broker.registration import broker_registration
from penstock.node.broker.upkeep import Upkeep
from penstock.node.controller.controller import NodeController
from penstock.node.partition.partition import Partition
from penstock.node.partition.replica_moves import ReplicaMoves
from penstock.node.quorum.quorum import Quorum
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.group_topic import auto_created
from penstock.node.shards.groups import Groups
from penstock.world import World

Q = TypeVar("Q")
R = TypeVar("R")

logger = logging.getLogger(__name__)

# How long a request that is forwarded may take where it does not say so itself.
_FORWARD_TIMEOUT_S = 30.0
# A topic that was just created is known here within milliseconds of the controller's answer; later
# something else is wrong.
_KNOWN_WITHIN_S = 2.0
# How long a client that asks who leads may wait for an election, and how often it is looked whether
# there was one.
_ELECTED_WITHIN_S = 1.0
_LOOK_AGAIN_S = 0.005
# A broker that was fenced is told to clients a little longer: librdkafka takes a second to find the
# next leader of what it produces to a broker that vanishes from the metadata.
_TOLD_OF_FENCED_S = 5.0


class Advertised(NamedTuple):
    """A broker as a client is told of it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Node:
    """`open` it, let its server listen, `join` the cluster, serve, `leave` it and `stop`."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        cluster_id: str,
        directories: list[LogDirectory],
        host_name: str,
    ) -> None:
        self.world = world
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = config.node_id
        # Listener name -> port, told by the server once it listens: port 0 in the settings takes a
        # free one.
        self.ports: dict[str, int] = {}
        self._metadata_directory = next(
            directory for directory in directories if directory.path == config.metadata_log_dir
        )
        self.quorum = Quorum(
            world,
            config,
            cluster_id,
            self._metadata_directory,
            on_applied=self._applied,
            on_leadership=self._leadership,
            spawn=self.spawn,
        )
        self.context = ControllerContext.of(config, world.rng.uuid)
        self.controller: NodeController | None = None
        if config.is_controller:
            self.controller = NodeController(
                world, config, cluster_id, self.quorum, self.context, self.spawn
            )
        self.channel = ControllerChannel(world, f"broker-{self.node_id}", self._active_controller)
        self.replicas = Replicas(
            self, LogStore(world, [one for one in directories if one.path in config.log_dirs])
        )
        self.lifecycle = Lifecycle(
            world,
            config,
            ControllerChannel(world, f"broker-{self.node_id}-heartbeats", self._active_controller),
            metadata_offset=lambda: self.quorum.applied_offset,
            offline_directories=self.replicas.offline_directories,
        )
        self.replica_moves = ReplicaMoves(self)
        self.groups = Groups(self)
        # What handlers keep from one request to the next, by its type.
        self.kept: dict[type, object] = {}
        self._host_name = host_name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()
        # When brokers that were live once were fenced.
        self._fenced_at: dict[int, float] = {}
        self._live: set[int] = set()
        self._producer_ids = range(0)
        self._producer_ids_lock = asyncio.Lock()

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def store(self) -> LogStore:
        return self.replicas.store

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        return self.replicas.partitions

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    @property
    def own_controller(self) -> NodeController:
        """For what is served on the listeners of controllers alone."""
        if self.controller is None:
            raise InvariantBroken(f"node {self.node_id} is no controller, but was asked as one")
        return self.controller

    # Life

    async def open(self) -> None:
        """Takes the directories, and reads what is known of the cluster."""
        self._failure = asyncio.get_running_loop().create_future()
        self._metadata_directory.take(self.world.disk)
        self.store.prepare()
        await self.quorum.open()

    async def join(self, ports: dict[str, int]) -> None:
        """The quorum first, then the broker: it registers, reads the metadata up to its
        registration, and opens the logs it tells of."""
        self.ports = self.quorum.ports = ports
        await self.quorum.start()
        if not self.config.is_broker:
            return
        epoch = await self.lifecycle.register(
            broker_registration(
                self.config,
                self.cluster_id,
                ports,
                self.store,
                self.world.rng.uuid(),
                self._host_name,
            )
        )
        self.spawn(self.lifecycle.run())
        await self.quorum.wait_applied(epoch)
        await self.replicas.open()
        self.groups.open()

    async def be_unfenced(self) -> None:
        """From here on the broker leads and follows; returns when clients can use it. A controller
        alone has nothing to wait for."""
        if not self.config.is_broker:
            return
        self.lifecycle.be_ready()
        self.spawn(Upkeep(self).run())
        await self.lifecycle.wait_unfenced()
        while self.image.brokers[self.node_id].fenced:
            await self._changed.wait()

    async def wait_failed(self) -> None:
        """Returns never, or raises what the node cannot go on after."""
        assert self._failure is not None
        await asyncio.shield(self._failure)

    def fail(self, error: BaseException) -> None:
        """The node cannot go on."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def leave(self) -> None:
        """Other brokers lead what this one led, before it stops serving: no request of a client
        fails."""
        if (
            self.config.is_broker
            and self.config[cluster_settings.CONTROLLED_SHUTDOWN_ENABLE]
            and not self._has_failed
        ):
            await self.lifecycle.shut_down()
        self.groups.close()

    async def stop(self) -> None:
        """A clean shutdown, after the quorum's and the server's: everything is on disk, and marked
        to be."""
        self.groups.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.channel.close()
        self.lifecycle.close()
        if self.replicas.opened:
            await self.replicas.close()
        self._metadata_directory.let_go()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the node's own. If it fails, the node stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    @property
    def _has_failed(self) -> bool:
        return self._failure is not None and self._failure.done()

    # What the quorum tells

    def _applied(self, image: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
        yield from self.replicas.apply(image, delta)
        self.groups.apply(image, delta)
        self._note_live(image, delta)
        if any(
            one in image.brokers and image.brokers[one].in_controlled_shutdown
            for one in delta.brokers
        ):
            # It may stop once all others know that it leads nothing any more: they say so now.
            self.lifecycle.tell_soon()
        self._changed.set()
        self._changed = asyncio.Event()

    def _note_live(self, image: MetadataImage, delta: MetadataDelta) -> None:
        for broker_id in delta.brokers:
            if broker_id in image.brokers and not image.brokers[broker_id].fenced:
                self._live.add(broker_id)
                self._fenced_at.pop(broker_id, None)
            elif broker_id in self._live:
                self._live.discard(broker_id)
                self._fenced_at[broker_id] = self.world.clock.monotonic()

    def _leadership(self, epoch: int | None) -> None:
        if self.controller is not None:
            self.controller.took_over(leads=epoch is not None)

    def _active_controller(self) -> tuple[str, int] | None:
        leader = self.quorum.leader_id
        if leader is None:
            return None
        address = self.quorum.voter_address(leader)
        return address.host, address.port

    # What handlers ask

    def topic(self, name: str = "", topic_id: UUID = NO_UUID) -> TopicImage:
        found = self.image.topics.get(name or self.image.topic_names.get(topic_id, ""))
        if found is not None:
            return found
        if name or topic_id == NO_UUID:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {uuid_text(topic_id)}"
        )

    def partition(self, topic: TopicImage, index: int) -> Partition:
        """A replica that this broker has; whether it leads is for the partition to say."""
        partition = self.partitions.get(TopicPartition(topic.name, index))
        if partition is not None:
            if partition.directory.failure is not None:
                raise partition.directory.offline()
            return partition
        state = topic.partitions.get(index)
        if state is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {index}"
            )
        if self.node_id not in state.replicas:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.node_id} has no replica of {topic.name}-{index}",
            )
        if self.quorum.applied_offset < self.image.offset:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.node_id} has no replica of {topic.name}-{index} yet",
            )
        reason = self.store.damaged.get(
            TopicPartition(topic.name, index), "its log directory is offline"
        )
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} cannot be served: {reason}"
        )

    def topic_config(self, name: str) -> LogConfig:
        """The topic's own settings over those of the broker, altered ones included."""
        return log_config(DynamicBroker(self.image, self.config), self.image.topic_configs(name))

    async def ask_controller(
        self,
        request: Q,
        decide: Callable[[NodeController, Q], Awaitable[R]],
        *,
        version: int,
        client_id: str | None = None,
        peer: str = "",
    ) -> R:
        """What the active controller decides: here, where this node is it, and otherwise by asking
        the one that is."""
        if self.controller is not None and self.controller.is_active:
            try:
                return await decide(self.controller, request)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
        timeout_s = getattr(request, "timeout_ms", _FORWARD_TIMEOUT_S * 1000) / 1000
        return cast(R, await forward(self.channel, request, version, client_id, peer, timeout_s))

    async def wait_topics(self, names: Iterable[str]) -> None:
        """Until this node knows them all, as it will in a moment; a topic that was deleted again is
        not waited for long."""
        try:
            async with asyncio.timeout(_KNOWN_WITHIN_S):
                for name in names:
                    while name not in self.image.topics:
                        await self._changed.wait()
        except TimeoutError:
            logger.warning(
                "a topic that was just created is not known here after %g s", _KNOWN_WITHIN_S
            )

    async def wait_leaders(self, names: Iterable[str]) -> None:
        """Until none of these topics is led by a broker to which this one lost its connection. A
        client that lost a leader asks at once who leads now; told the same again, librdkafka would
        not ask for another second. Better an answer that waits for the election."""
        deadline = self.world.clock.monotonic() + _ELECTED_WITHIN_S
        for name in names:
            while self._led_by_the_lost(name) and self.world.clock.monotonic() < deadline:
                await asyncio.sleep(_LOOK_AGAIN_S)

    def _led_by_the_lost(self, name: str) -> bool:
        topic = self.image.topics.get(name)
        return topic is not None and any(
            self.replicas.is_cut_off(leader)
            for leader in {state.leader for state in topic.partitions.values()}
        )

    async def next_producer_id(self) -> int:
        # Loaded when first needed, as handlers are: a node must start quickly.
        from penstock.protocol.messages.allocate_producer_ids import (
            AllocateProducerIdsRequest,
            AllocateProducerIdsResponse,
        )

        async with self._producer_ids_lock:
            if not self._producer_ids:
                request = AllocateProducerIdsRequest(
                    broker_id=self.node_id, broker_epoch=self.broker_epoch
                )
                block = await self.channel.call(
                    request, AllocateProducerIdsResponse, timeout_s=_FORWARD_TIMEOUT_S
                )
                if block.error_code:
                    raise KafkaError(ErrorCode(block.error_code), "no producer ids can be had")
                self._producer_ids = range(
                    block.producer_id_start, block.producer_id_start + block.producer_id_len
                )
            self._producer_ids, taken = self._producer_ids[1:], self._producer_ids[0]
            return taken

    async def create_missing(self, names: list[str]) -> dict[str, KafkaError | None]:
        """Topics that a client asks for, or a coordinator needs. What went wrong with each."""
        from penstock.controller.topics.create import create_topics
        from penstock.protocol.messages.create_topics import (
            CreateTopicsRequest,
            CreateTopicsResponse,
        )

        def decide(
            controller: NodeController, request: CreateTopicsRequest
        ) -> Awaitable[CreateTopicsResponse]:
            return controller.decide(
                lambda image: create_topics(image, request, controller.context)
            )

        response = await self.ask_controller(auto_created(self.config, names), decide, version=7)
        await self.wait_topics([topic.name for topic in response.topics if not topic.error_code])
        return {
            topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message or "")
            if topic.error_code
            else None
            for topic in response.topics
        }

    # Where brokers are

    def advertised(
        self, listener_name: str, local_host: str, *, fenced: bool = False
    ) -> list[Advertised]:
        """Every live broker as a client of this listener reaches it, with `fenced` the others too.
        This one, where it listens on every address, is told as the one by which the client came."""
        lately = self.world.clock.monotonic() - _TOLD_OF_FENCED_S
        wildcard = any(
            listener.name == listener_name and listener.host in (None, "", "0.0.0.0", "::")
            for listener in self.config.advertised_broker_listeners
        )
        return [
            Advertised(
                broker.id,
                local_host if wildcard and broker.id == self.node_id else endpoint.host,
                endpoint.port,
                broker.rack,
            )
            for broker in self.image.brokers.values()
            if fenced or not broker.fenced or self._fenced_at.get(broker.id, 0.0) > lately
            for endpoint in broker.endpoints
            if endpoint.name == listener_name
        ]

    def broker_address(self, broker_id: int) -> tuple[str, int] | None:
        """Where brokers reach each other."""
        broker = self.image.brokers.get(broker_id)
        name = self.config.inter_broker_listener_name
        found = (
            next((one for one in broker.endpoints if one.name == name), None)
            if broker is not None
            else None
        )
        return None if found is None else (found.host, found.port)
