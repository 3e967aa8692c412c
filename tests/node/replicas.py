"""Brokers with partitions and replication between them. The test is the controller: it decides who
leads and which replicas are in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from penstock.config.node import read_node_config
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import SERVED, load
from penstock.ids import NO_UUID, TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.store import LogStore
from penstock.metadata.image import BrokerImage, MetadataImage, PartitionState, TopicImage
from penstock.node.delayed import ActionQueue
from penstock.node.fetch.fetches import Fetches
from penstock.node.metadata import Advertised, MetadataView
from penstock.node.partition.counts import PartitionCounts
from penstock.node.partition.env import PartitionEnv, PartitionMarks
from penstock.node.partition.isr_changes import IsrChanges
from penstock.node.partition.isr_log import IsrLog
from penstock.node.partition.partition import Partition
from penstock.node.replication.fetchers import ReplicaFetchers
from penstock.node.replication.replicas import Replicas
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.replica.throttle import ReplicationThrottles
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.server.dispatch import Dispatch
from penstock.server.server import Server
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.making import SMALL, batch

T = TypeVar("T")

TOPIC, TOPIC_ID = "orders", UUID(int=4711)
CONFIG = replace(SMALL, min_insync_replicas=2, segment_bytes=100_000)
LAG_S = 30.0
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
    """The state of the cluster as the test sets it; all brokers learn it immediately. Without
    `deciding`, ISR proposals are recorded and time out."""

    def __init__(self, replicas: int = 3, partitions: int = 1) -> None:
        ids = tuple(range(1, replicas + 1))
        state = PartitionState(replicas=ids, isr=ids, leader=1, leader_epoch=1)
        self.states = dict.fromkeys(range(partitions), state)
        self.brokers: dict[int, BrokerImage] = {}
        self.nodes: dict[int, Broker] = {}
        self.deciding = True
        self.proposed: list[AlterPartitionRequest] = []

    def register(self, broker_id: int, rack: str | None = None) -> None:
        """Register a broker in a new epoch."""
        epoch = max([100, *(broker.epoch for broker in self.brokers.values())]) + 1
        self.brokers = {
            **self.brokers,
            broker_id: BrokerImage(broker_id, epoch, UUID(int=epoch), rack=rack, fenced=False),
        }
        self._brokers_changed()

    def fence(self, broker_id: int, fenced: bool = True) -> None:
        self.brokers = {**self.brokers, broker_id: replace(self.brokers[broker_id], fenced=fenced)}
        self._brokers_changed()

    def _brokers_changed(self) -> None:
        for node in self.nodes.values():
            for partition in node.partitions.values():
                partition.review()

    def change(self, index: int = 0, **changes: Any) -> None:
        """Change a partition's state; a change of its leader begins a leader epoch."""
        before = self.states[index]
        epoch = before.leader_epoch + ("leader" in changes)
        self.states[index] = replace(
            before, leader_epoch=epoch, partition_epoch=before.partition_epoch + 1, **changes
        )
        for node in self.nodes.values():
            node.apply(index)

    async def call(self, request: object, response: type[T], *, timeout_s: float) -> T:
        assert isinstance(request, AlterPartitionRequest)
        assert response is AlterPartitionResponse
        self.proposed.append(request)
        await asyncio.sleep(0.001)
        if not self.deciding:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no response within {timeout_s} s")
        topics = [
            AlterPartitionResponse.Topic(
                topic_id=TOPIC_ID, partitions=tuple(map(self._alter, topic.partitions))
            )
            for topic in request.topics
        ]
        return cast(T, AlterPartitionResponse(topics=tuple(topics)))

    def _alter(
        self, proposed: AlterPartitionRequest.Topic.Partition
    ) -> AlterPartitionResponse.Topic.Partition:
        index, state = proposed.partition_index, self.states[proposed.partition_index]
        error = ErrorCode.NONE
        if proposed.leader_epoch != state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif proposed.partition_epoch != state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            self.brokers[member.broker_id].fenced
            or member.broker_epoch not in (-1, self.brokers[member.broker_id].epoch)
            for member in proposed.new_isr_with_epochs
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.change(
                index, isr=tuple(member.broker_id for member in proposed.new_isr_with_epochs)
            )
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
    """The parts of a node that replication and the Fetch and Produce handlers use."""

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
        # The parts that the Fetch and Produce handlers declare.
        self.clock = world.clock
        self.metadata = self.replicas = self
        self.quorum = SimpleNamespace(kraft_version=0)
        self.quotas = ClientQuotas()
        self.actions = ActionQueue(world.clock)
        self.fetches = Fetches(
            world, cast(MetadataView, self), cast(Replicas, self), self.actions, self.spawn
        )
        self.host, self.port = host, port
        self.log_config = config
        self.config = read_node_config(
            _PROPERTIES.format(id=broker_id, host=host, port=port).encode(), "test"
        )
        world.disk.make_dirs(path)
        self.store = LogStore(world, [LogDirectory(path, UUID(int=90 + broker_id))])
        self.partitions: dict[TopicPartition, Partition] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        marks = PartitionMarks()
        log = IsrLog(broker_id, world.clock, lambda: controller.brokers, marks.fetched_at)
        changes = IsrChanges(broker_id, controller.call, self.epoch, self.spawn, log)
        self.env = PartitionEnv(
            broker_id,
            world,
            self.store,
            self.spawn,
            lambda: controller.brokers,
            changes.propose,
            lag_s,
            self.actions,
            marks,
        )
        self.replication = ReplicaFetchers(
            self.env, self.config, address_of=self._address_of, broker_epoch=self.epoch
        )

    @property
    def throttles(self) -> ReplicationThrottles:
        return self.env.throttles

    @property
    def counts(self) -> PartitionCounts:
        return self.env.counts

    @property
    def fetched_at(self) -> dict[int, float]:
        return self.env.marks.fetched_at

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
        watermarks = self.store.offsets.read_high_watermarks()
        self.server = Server(
            self.world, self.config, Dispatch(self, SERVED, load), actions=self.actions
        )
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
                self.partitions[name] = Partition(log, self.env, watermarks.get(name, 0))
                self.apply(index)

    def apply(self, index: int) -> None:
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
        await self.store.offsets.save_high_watermarks(
            {name: partition.high_watermark for name, partition in self.partitions.items()}
        )
        await self.store.close()

    # Called by handlers

    @property
    def image(self) -> MetadataImage:
        return MetadataImage(brokers=self.controller.brokers)

    def topic(self, name: str = "", topic_id: UUID = NO_UUID) -> TopicImage:
        if topic_id != TOPIC_ID and name != TOPIC:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no such topic")
        return TopicImage(TOPIC, TOPIC_ID, self.controller.states)

    def topic_config(self, _name: str) -> LogConfig:
        return self.log_config

    def partition(self, topic: TopicImage, index: int) -> Partition:
        return self.partitions[TopicPartition(topic.name, index)]

    def advertised(self, _listener: str, _host: str) -> list[Advertised]:
        return [
            Advertised(node.node_id, node.host, node.port, None)
            for node in self.controller.nodes.values()
        ]


class Cluster:
    """Three brokers. Broker 1 leads all partitions at the start."""

    def __init__(self, simulation: Simulation, config: LogConfig, partitions: int) -> None:
        self.simulation = simulation
        self.controller = Controller(partitions=partitions)
        self.brokers: dict[int, Broker] = {}
        for number in (1, 2, 3):
            self.controller.register(number, rack=f"r{number}")
            self.make(number, config)

    def make(self, number: int, config: LogConfig = CONFIG) -> None:
        world = self.simulation.node(f"b{number}").world
        self.brokers[number] = Broker(
            self.controller, world, number, f"b{number}", 9092, "/d", config, LAG_S
        )

    def partition(self, broker: int, index: int = 0) -> Partition:
        return self.brokers[broker].partitions[TopicPartition(TOPIC, index)]

    def ends(self, index: int = 0) -> list[tuple[int, int]]:
        return [
            (self.partition(n, index).log_end_offset, self.partition(n, index).high_watermark)
            for n in self.brokers
        ]

    async def produce(
        self, *values: str, leader: int = 1, index: int = 0, within_s: float = 5.0
    ) -> int:
        partition = self.partition(leader, index)
        end = partition.append(batch(*values), acks_all=True).end_offset
        await partition.wait_committed(end, asyncio.get_running_loop().time() + within_s)
        return end

    async def until(self, condition: Callable[[], bool], within_s: float = 10.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.001)

    def isr(self) -> tuple[int, ...]:
        return self.controller.states[0].isr


def run(
    test: Callable[[Cluster], Coroutine[Any, Any, None]],
    *,
    config: LogConfig = CONFIG,
    partitions: int = 1,
    seed: int = 1,
) -> None:
    simulation = Simulation(seed)

    async def main() -> None:
        cluster = Cluster(simulation, config, partitions)
        for broker in cluster.brokers.values():
            await broker.start()
        await test(cluster)
        for broker in list(cluster.brokers.values()):
            await broker.stop()

    simulation.run(main())


def values(partition: Partition) -> bytes:
    records = partition.log.read(
        partition.log_start_offset, 1_000_000, below=partition.log_end_offset
    )
    return b"" if records is None else records.read()
