"""Brokers with partitions and replication between them, and a test in the place of the controller:
it says who leads and who is in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar, cast
from uuid import UUID

from penstock.config.node import read_node_config
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import SERVED, load
from penstock.handlers.fetch_sessions import FetchSessions
from penstock.ids import NO_UUID, TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.store import LogStore
from penstock.metadata.image import BrokerImage, MetadataImage, PartitionState, TopicImage
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.isr_changes import IsrChanges
from penstock.node.partition.partition import Partition
from penstock.node.replication.fetchers import Replication
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.server.dispatch import Dispatch
from penstock.server.server import Server
from penstock.world import World

T = TypeVar("T")

TOPIC, TOPIC_ID = "orders", UUID(int=4711)
_PROPERTIES = """\
process.roles=broker
node.id={id}
listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=9@controller:9093
log.dirs=/unused
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
"""


class Controller:
    """What the cluster is, as the test says, told to every broker at once. `deciding` off:
    proposals are kept and not answered."""

    def __init__(self, replicas: int = 3, partitions: int = 1) -> None:
        ids = tuple(range(1, replicas + 1))
        state = PartitionState(replicas=ids, isr=ids, leader=1, leader_epoch=1)
        self.states = dict.fromkeys(range(partitions), state)
        self.brokers: dict[int, BrokerImage] = {}
        self.nodes: dict[int, Broker] = {}
        self.deciding = True
        self.proposed: list[AlterPartitionRequest] = []

    def register(self, broker_id: int, rack: str | None = None) -> None:
        """A new life of a broker."""
        epoch = max([100, *(broker.epoch for broker in self.brokers.values())]) + 1
        self.brokers = {
            **self.brokers,
            broker_id: BrokerImage(broker_id, epoch, UUID(int=epoch), rack=rack, fenced=False),
        }
        self._tell_brokers()

    def fence(self, broker_id: int, fenced: bool = True) -> None:
        self.brokers = {**self.brokers, broker_id: replace(self.brokers[broker_id], fenced=fenced)}
        self._tell_brokers()

    def _tell_brokers(self) -> None:
        for node in self.nodes.values():
            for partition in node.partitions.values():
                partition.review()

    def change(self, index: int = 0, **changes: Any) -> None:
        """A partition's state; a change of its leader begins a leader epoch."""
        before = self.states[index]
        epoch = before.leader_epoch + ("leader" in changes)
        self.states[index] = replace(
            before, leader_epoch=epoch, partition_epoch=before.partition_epoch + 1, **changes
        )
        for node in self.nodes.values():
            node.learn(index)

    async def call(self, request: object, response: type[T], *, timeout_s: float) -> T:
        assert isinstance(request, AlterPartitionRequest)
        assert response is AlterPartitionResponse
        self.proposed.append(request)
        await asyncio.sleep(0.001)
        if not self.deciding:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"nobody answered within {timeout_s} s")
        topics = [
            AlterPartitionResponse.Topic(
                topic_id=TOPIC_ID, partitions=tuple(map(self._alter, topic.partitions))
            )
            for topic in request.topics
        ]
        return cast(T, AlterPartitionResponse(topics=tuple(topics)))

    def _alter(
        self, asked: AlterPartitionRequest.Topic.Partition
    ) -> AlterPartitionResponse.Topic.Partition:
        index, state = asked.partition_index, self.states[asked.partition_index]
        error = ErrorCode.NONE
        if asked.leader_epoch != state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            self.brokers[one.broker_id].fenced
            or one.broker_epoch not in (-1, self.brokers[one.broker_id].epoch)
            for one in asked.new_isr_with_epochs
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.change(index, isr=tuple(one.broker_id for one in asked.new_isr_with_epochs))
            state = self.states[index]
        return AlterPartitionResponse.Topic.Partition(
            partition_index=index,
            error_code=error,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
        )


class Broker:
    """As much of a node as replication and the handlers of Fetch and Produce ask for."""

    def __init__(
        self,
        controller: Controller,
        world: World,
        broker_id: int,
        host: str,
        port: int,
        path: str,
        config: LogConfig,
        lag_s: float,
    ) -> None:
        self.controller = controller
        self.world = world
        self.node_id = broker_id
        # As the parts of the handlers of Fetch and Produce.
        self.clock, self.offload = world.clock, world.offload
        self.metadata = self.replicas = self.supervisor = self
        self.fetches = FetchSessions(world.rng)
        self.host, self.port = host, port
        self.log_config = config
        self.config = read_node_config(
            _PROPERTIES.format(id=broker_id, host=host, port=port).encode(), "test"
        )
        world.disk.make_dirs(path)
        self.store = LogStore(world, [LogDirectory(path, UUID(int=90 + broker_id))])
        self.partitions: dict[TopicPartition, Partition] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        changes = IsrChanges(broker_id, controller.call, self.epoch, self.spawn)
        self.home = PartitionEnv(
            broker_id,
            world,
            self.store,
            self.spawn,
            lambda: controller.brokers,
            changes.propose,
            lag_s,
        )
        self.replication = Replication(
            self.home, self.config, address_of=self._address_of, broker_epoch=self.epoch
        )

    def epoch(self) -> int:
        broker = self.controller.brokers.get(self.node_id)
        return -1 if broker is None else broker.epoch

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a task failed", "exception": task.exception()}
            )

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        node = self.controller.nodes.get(broker_id)
        return None if node is None else (node.host, node.port)

    async def start(self) -> None:
        await self.store.open(lambda _partition: self.log_config)
        watermarks = self.store.read_high_watermarks()
        self.server = Server(self.world, self.config, Dispatch(self, SERVED, load))
        await self.server.start()
        await self.server.accept_clients()
        await self.server.accept_clients()
        self.port = self.server.ports["PLAINTEXT"]
        self.controller.nodes[self.node_id] = self
        for index, state in self.controller.states.items():
            if self.node_id in state.replicas:
                name = TopicPartition(TOPIC, index)
                log = self.store.logs.get(name) or self.store.create(
                    name, TOPIC_ID, self.log_config
                )
                self.partitions[name] = Partition(log, self.home, watermarks.get(name, 0))
                self.learn(index)

    def learn(self, index: int) -> None:
        partition = self.partitions.get(TopicPartition(TOPIC, index))
        if partition is not None:
            partition.become(self.controller.states[index])
            self.replication.follow(partition)

    async def stop(self) -> None:
        self.controller.nodes.pop(self.node_id, None)
        await self.server.stop(0.1)
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.store.save_high_watermarks(
            {name: partition.high_watermark for name, partition in self.partitions.items()}
        )
        await self.store.close()

    # What handlers ask

    @property
    def image(self) -> MetadataImage:
        return MetadataImage(brokers=self.controller.brokers)

    def topic(self, name: str = "", topic_id: UUID = NO_UUID) -> TopicImage:
        if topic_id != TOPIC_ID and name != TOPIC:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no such topic")
        return TopicImage(TOPIC, TOPIC_ID, self.controller.states)

    def partition(self, topic: TopicImage, index: int) -> Partition:
        return self.partitions[TopicPartition(topic.name, index)]

    def advertised(self, _listener: str, _host: str) -> list[tuple[int, str, int, None]]:
        return [
            (node.node_id, node.host, node.port, None) for node in self.controller.nodes.values()
        ]
