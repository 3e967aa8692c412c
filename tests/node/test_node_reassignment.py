"""Reassignments in a whole cluster of simulated nodes: replicas are created, catch up and are
deleted, while clients go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.rebalance import throttles
from penstock.client.rebalance.execution import Execution, Progress
from penstock.client.rebalance.model import Move, Plan
from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.metadata.image import PartitionState
from penstock.node.node import Node
from penstock.sim.cluster.nodes import ClusterNode, build_nodes
from penstock.sim.harness import replaced
from penstock.world.sim import Simulation

NODES = 4
VOTER = 1
PROPERTIES = """\
process.roles={roles}
node.id={node_id}
listeners={listeners}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@n1:9093
log.dirs={directories}
metadata.log.dir=/metadata
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1000
replica.fetch.wait.max.ms=200
replica.lag.time.max.ms=1000
log.segment.delete.delay.ms=100
log.retention.check.interval.ms=200
log.initial.task.delay.ms=100
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
"""
FIRST = TopicPartition("t", 0)


def config(number: int) -> NodeConfig:
    is_voter = number == VOTER
    listeners = [f"PLAINTEXT://n{number}:9092"] + [f"CONTROLLER://n{number}:9093"] * is_voter
    text = PROPERTIES.format(
        roles="broker,controller" if is_voter else "broker",
        node_id=number,
        listeners=",".join(listeners),
        directories="/d0,/d1" if number == NODES else "/d0",
    )
    return read_node_config(text.encode(), f"node {number}")


class Cluster:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        configs = {f"n{number}": config(number) for number in range(1, NODES + 1)}
        self.nodes: dict[str, ClusterNode] = build_nodes(
            simulation, configs, lambda _text: None, self._ended
        )
        self.processes: dict[int, Node] = {}
        self.client: Client

    def _ended(self, node_id: int, error: str) -> None:
        raise AssertionError(f"node {node_id} ended: {error}")

    def state(self, partition: TopicPartition = FIRST) -> PartitionState:
        image = self.processes[VOTER].metadata.image
        return image.topics[partition.topic].partitions[partition.partition]

    def directories(self, number: int) -> list[str]:
        """Return the names of the partition directories of a node."""
        disk = self.nodes[f"n{number}"].machine.world.disk
        roots = self.nodes[f"n{number}"].config.directories
        return [
            name
            for root in roots
            for name in disk.list(root)
            if disk.is_dir(f"{root}/{name}") and not name.startswith("__")
        ]

    async def until(self, condition: Callable[[], bool], within_s: float = 20.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.01)

    async def reassign(self, *target: int, partition: TopicPartition = FIRST) -> None:
        errors = await self.client.admin.alter_partition_reassignments({partition: target})
        assert errors == {partition: None}

    async def until_moved(self, *target: int) -> None:
        await self.until(lambda: self.state().replicas == self.state().isr == target)

    async def produce(self, *values: bytes) -> None:
        async with self.client.producer() as producer:
            for value in values:
                await (await producer.send("t", value, partition=0))

    async def consume(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        async with self.client.consumer() as consumer:
            await consumer.assign({FIRST: 0})
            while len(found) < count:
                found += [record.value or b"" for record in await consumer.poll()]
        return found


def run(test: Callable[[Cluster], Awaitable[None]], seed: int = 1) -> None:
    simulation = Simulation(seed)

    async def main() -> None:
        cluster = Cluster(simulation)

        def remember(init: Callable[..., None]) -> Callable[..., None]:
            def observed(node: Node, *args: object, **kwargs: object) -> None:
                init(node, *args, **kwargs)
                cluster.processes[node.config.node_id] = node

            return observed

        machine = simulation.node("c1")

        async def as_client() -> None:
            bootstrap = ",".join(f"n{number}:9092" for number in range(1, NODES + 1))
            async with Client(machine.world, bootstrap) as client:
                cluster.client = client
                await cluster.until(
                    lambda: (
                        len(cluster.processes) == NODES
                        and sum(
                            not broker.fenced
                            for broker in cluster.processes[VOTER].metadata.image.brokers.values()
                        )
                        == NODES
                    )
                )
                await test(cluster)

        with replaced(Node, "__init__", remember):
            for node in cluster.nodes.values():
                node.start()
            await cluster_is_listening(cluster)
            await machine.run(as_client())

    simulation.run(main())


async def cluster_is_listening(cluster: Cluster) -> None:
    await cluster.until(
        lambda: (
            VOTER in cluster.processes
            and len(cluster.processes[VOTER].metadata.image.brokers) == NODES
        )
    )


def test_a_partition_moves_with_its_records_and_leaves_nothing_behind() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.client.admin.create_topic("t", assignments=[[1, 2]])
        values = [b"%d" % number for number in range(50)]
        await cluster.produce(*values)
        await cluster.reassign(3, 4)
        await cluster.until_moved(3, 4)
        assert cluster.state().leader == 3
        assert await cluster.client.admin.list_partition_reassignments() == {}
        assert await cluster.consume(len(values)) == values
        await cluster.produce(b"more")
        await cluster.until(lambda: not cluster.directories(1) and not cluster.directories(2))
        assert cluster.directories(3) == cluster.directories(4) == ["t-0"]
        # Broker 4 has two log directories, and has reported the one that it chose.
        chosen = cluster.processes[4].replicas.partitions[FIRST].directory.id
        await cluster.until(lambda: cluster.state().directories[1] == chosen)
        # And back: the brokers have deleted the partition, and create it again.
        await cluster.reassign(1, 2)
        await cluster.until_moved(1, 2)
        assert await cluster.consume(len(values) + 1) == [*values, b"more"]

    run(main)


def test_clients_go_on_while_a_partition_moves() -> None:
    """No call fails: a produce request that waits on the old leader is answered with an error that
    makes its client look for the new one."""

    async def main(cluster: Cluster) -> None:
        await cluster.client.admin.create_topic("t", assignments=[[1, 2]])
        sent = 0
        moved = asyncio.Event()

        async def load() -> None:
            nonlocal sent
            async with cluster.client.producer(delivery_timeout_s=10.0) as producer:
                while not moved.is_set():
                    await (await producer.send("t", b"%d" % sent, partition=0))
                    sent += 1
                    await asyncio.sleep(0.005)

        loading = asyncio.create_task(load())
        for target in ((3, 4), (2, 3), (4, 1), (1, 2), (3, 4)):
            await cluster.reassign(*target)
            await cluster.until_moved(*target)
            await asyncio.sleep(0.5)
        moved.set()
        await loading
        assert sent > 50
        assert await cluster.consume(sent) == [b"%d" % number for number in range(sent)]

    run(main)


def test_a_cancelled_reassignment_deletes_what_was_copied() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.client.admin.create_topic("t", assignments=[[1, 2]])
        values = [b"%d" % number for number in range(20)]
        await cluster.produce(*values)
        cluster.nodes["n4"].pause()
        await cluster.reassign(3, 4)
        await cluster.until(lambda: 3 in cluster.state().isr)
        ongoing = await cluster.client.admin.list_partition_reassignments([FIRST])
        assert {name: tuple(found) for name, found in ongoing.items()} == {
            FIRST: ((3, 4, 1, 2), (3, 4), (1, 2))
        }
        cancelled = await cluster.client.admin.alter_partition_reassignments({FIRST: None})
        assert cancelled == {FIRST: None}
        cluster.nodes["n4"].resume()
        await cluster.until_moved(1, 2)
        await cluster.until(lambda: not cluster.directories(3) and not cluster.directories(4))
        assert await cluster.consume(len(values)) == values
        [error] = (await cluster.client.admin.alter_partition_reassignments({FIRST: None})).values()
        assert error is not None
        assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    run(main)


def test_a_broker_that_was_down_sets_the_replica_aside_that_it_no_longer_has() -> None:
    """As in Kafka it is kept: the metadata may be wrong, not the log."""

    async def main(cluster: Cluster) -> None:
        await cluster.client.admin.create_topic("t", assignments=[[1, 2]])
        await cluster.produce(b"kept")
        await cluster.nodes["n2"].stop(within_s=10)
        await cluster.reassign(1, 3)
        await cluster.until(lambda: cluster.state().replicas == (1, 3))
        cluster.nodes["n2"].restart()
        await cluster.until(lambda: any(name.endswith("-stray") for name in cluster.directories(2)))
        await cluster.reassign(1, 2)
        await cluster.until(lambda: sorted(cluster.state().isr) == [1, 2])

    run(main)


def test_a_replica_in_a_failed_directory_moves_away() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.client.admin.create_topic("t", assignments=[[1, 4]])
        await cluster.produce(b"a", b"b")
        directory = cluster.processes[4].replicas.partitions[FIRST].directory
        directory.fail("test", OSError(5, "broken"))
        await cluster.until(lambda: cluster.state().isr == (1,))
        await cluster.reassign(1, 3)
        await cluster.until_moved(1, 3)
        assert await cluster.consume(2) == [b"a", b"b"]

    run(main)


def test_a_damaged_replica_is_replaced_by_moving_it_away_and_back() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.client.admin.create_topic("t", assignments=[[1, 2]])
        await cluster.produce(b"a")
        replicas = cluster.processes[2].replicas
        # As after a start with a damaged log.
        replicas.store.logs.pop(FIRST)
        replicas.partitions.pop(FIRST)
        replicas.store.damaged[FIRST] = "for the test"
        await cluster.reassign(1, 3)
        await cluster.until(lambda: cluster.state().replicas == (1, 3))
        await cluster.until(lambda: not cluster.directories(2))
        await cluster.reassign(1, 2)
        await cluster.until_moved(1, 2)
        assert replicas.partitions[FIRST].log_end_offset == 1

    run(main)


def test_a_throttle_is_a_setting_of_brokers_and_topics() -> None:
    async def main(cluster: Cluster) -> None:
        admin = cluster.client.admin
        await admin.create_topic("t", assignments=[[1, 2]])
        await admin.alter_configs(
            ConfigResourceType.TOPIC,
            "t",
            put={
                "leader.replication.throttled.replicas": "0:1,0:2",
                "follower.replication.throttled.replicas": "0:3,0:4",
            },
        )
        await cluster.produce(*(b"x" * 1_000 for _number in range(60)))
        for broker in range(1, NODES + 1):
            await admin.alter_configs(
                ConfigResourceType.BROKER,
                str(broker),
                put={
                    "leader.replication.throttled.rate": "10000",
                    "follower.replication.throttled.rate": "10000",
                },
            )
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.reassign(3, 4)
        await cluster.until_moved(3, 4)
        assert loop.time() - begun > 4
        with pytest.raises(KafkaError, match="at least 0"):
            await admin.alter_configs(
                ConfigResourceType.BROKER, "1", put={"leader.replication.throttled.rate": "-1"}
            )

    run(main)


MOVE_AWAY = Plan((Move(FIRST, (1, 2), (3, 4), 60_000),), {}, {})


def test_a_rebalance_reports_moves_that_another_client_cancelled() -> None:
    async def main(cluster: Cluster) -> None:
        admin = cluster.client.admin
        await admin.create_topic("t", assignments=[[1, 2]])
        await cluster.produce(*(b"x" * 1_000 for _number in range(60)))
        reports: list[Progress] = []
        execution = Execution(cluster.client, MOVE_AWAY, throttle=1_000, report=reports.append)
        running = asyncio.create_task(execution.run())
        await cluster.until(lambda: cluster.state().adding_replicas != ())
        assert await admin.alter_partition_reassignments({FIRST: None}) == {FIRST: None}
        result = await running
        assert [*result.failed] == [FIRST]
        assert "replicas are [1, 2] and not [3, 4]" in result.failed[FIRST].message
        assert (reports[-1].moves_done, reports[-1].bytes_done) == (0, 0)

    run(main)


def test_a_rebalance_that_cannot_throttle_its_topics_leaves_no_throttle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_args: object) -> None:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "no throttles")

    async def main(cluster: Cluster) -> None:
        admin = cluster.client.admin
        await admin.create_topic("t", assignments=[[1, 2]])
        with monkeypatch.context() as patched:
            patched.setattr(throttles, "throttle_topics", refuse)
            with pytest.raises(KafkaError, match="no throttles"):
                await Execution(cluster.client, MOVE_AWAY, throttle=1_000).run()
        assert not cluster.state().adding_replicas
        for broker in range(1, NODES + 1):
            configs = await admin.describe_configs(ConfigResourceType.BROKER, str(broker))
            rates = {config.value for config in configs if config.name.endswith("throttled.rate")}
            assert rates == {str(2**63 - 1)}

    run(main)
