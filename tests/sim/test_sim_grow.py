"""A simulated cluster of 3 brokers grows and shrinks, while a client produces, brokers crash, and
the operator's command is interrupted.

With PENSTOCK_GROW_AND_SHRINK=1 it grows to 50 brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Coroutine
from typing import Any

import pytest

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.rebalance.execution import Execution, moves_in_progress
from penstock.client.rebalance.model import Load, Plan, loads_of
from penstock.client.rebalance.observe import observe
from penstock.client.rebalance.planner import plan_rebalance
from penstock.config.node import read_node_config
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.nodes import ClusterNode, build_nodes
from penstock.world.sim import Simulation

DRILL = bool(os.environ.get("PENSTOCK_GROW_AND_SHRINK"))
MOST = 50 if DRILL else 8
LEAST = 4
TOPIC, PARTITIONS = "orders", 200 if DRILL else 40
PROPERTIES = """\
process.roles={roles}
node.id={id}
listeners={listeners}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@n1:9093,2@n2:9093,3@n3:9093
log.dirs=/data
default.replication.factor=3
"""


class Cluster:
    """Nodes 1 to 3 are controllers too. The client runs on a machine of its own."""

    def __init__(self, simulation: Simulation) -> None:
        configs = {}
        for node_id in range(1, MOST + 1):
            listener = f"PLAINTEXT://n{node_id}:9092"
            is_controller = node_id <= 3
            text = PROPERTIES.format(
                id=node_id,
                roles="broker,controller" if is_controller else "broker",
                listeners=f"{listener},CONTROLLER://n{node_id}:9093" if is_controller else listener,
            )
            configs[f"n{node_id}"] = read_node_config(text.encode(), "test")
        self.ended: list[str] = []
        self.nodes: dict[str, ClusterNode] = build_nodes(
            simulation, configs, lambda _text: None, lambda _id, error: self.ended.append(error)
        )
        self.machine = simulation.node("client")
        self.acknowledged: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self._sent = 0

    def start(self, ids: Collection[int]) -> None:
        for node_id in ids:
            self.nodes[f"n{node_id}"].start()

    def client(self) -> Client:
        return Client(self.machine.world, "n1:9092,n2:9092,n3:9092", request_timeout_s=10.0)

    async def produce(self, stop: asyncio.Event) -> None:
        """Produce to all partitions in turn. A producer retries until a record is acknowledged."""
        async with self.client() as client, client.producer(acks=-1) as producer:
            while not stop.is_set():
                number, self._sent = self._sent, self._sent + 1
                index = number % PARTITIONS
                sent = await producer.send(TOPIC, b"%d" % number + b"." * 200, partition=index)
                await sent
                self.acknowledged[index].add(number)

    async def read_back(self) -> list[set[int]]:
        """Read all partitions to their ends."""
        async with self.client() as client:
            names = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            ends = await client.admin.list_offsets(dict.fromkeys(names, -1))
            found: list[set[int]] = [set() for _ in names]
            left = sum(end.offset for end in ends.values())
            async with client.consumer() as consumer:
                await consumer.assign(dict.fromkeys(names, BEGINNING))
                async for record in consumer:
                    found[record.partition].add(int((record.value or b"").rstrip(b".")))
                    left -= 1
                    if not left:
                        break
            return found


async def run_plan(
    cluster: Cluster, *, drain: Collection[int] = (), interrupted_after_s: float | None = None
) -> Plan:
    """Plan and execute once, as a process of the operator would."""
    async with cluster.client() as client:
        ongoing = await client.admin.list_partition_reassignments()
        view = await observe(client, ongoing)
        plan = plan_rebalance(view, drain=drain, negligible_bytes=0)
        execution = Execution(
            client, plan, moves_in_progress(view, ongoing), concurrent_moves=10, throttle=1_000_000
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interrupted_after_s):
                await execution.run()
        return plan


async def until_done(cluster: Cluster, drain: Collection[int] = ()) -> None:
    """Run plans until one succeeds: a broker may be down while one runs."""
    for _ in range(20):
        try:
            await run_plan(cluster, drain=drain)
        except KafkaError:
            await asyncio.sleep(1)
        else:
            return
    raise AssertionError("no rebalance succeeded")


async def loads(cluster: Cluster) -> dict[int, Load]:
    async with cluster.client() as client:
        assert await client.admin.list_partition_reassignments() == {}
        view = await observe(client, {})
        return loads_of(view.brokers, view.partitions)


def assert_balanced(found: dict[int, Load], brokers: Collection[int]) -> None:
    for values in (
        [found[broker].replicas for broker in brokers],
        [found[broker].leaders for broker in brokers],
        [found[broker].bytes for broker in brokers],
    ):
        mean = sum(values) / len(values)
        assert all(abs(value - mean) <= max(0.1 * mean, 1) for value in values), values


async def crash_some(cluster: Cluster, rng: Any, stop: asyncio.Event) -> None:
    """Kill one broker after the other, each for a few seconds."""
    while not stop.is_set():
        await asyncio.sleep(rng.uniform(2, 5))
        node = cluster.nodes[f"n{rng.randrange(1, MOST + 1)}"]
        node.crash(power_loss=False)
        await asyncio.sleep(rng.uniform(1, 3))
        node.restart()


async def on_client(cluster: Cluster, work: Coroutine[Any, Any, Any]) -> Any:
    return await cluster.machine.run(work)


async def throttled_topics(cluster: Cluster) -> list[str]:
    async with cluster.client() as client:
        entries = await client.admin.describe_configs(ConfigResourceType.TOPIC, TOPIC)
        return [entry.name for entry in entries if "throttled" in entry.name and entry.value]


async def grow_and_shrink(simulation: Simulation, *, crashes: bool) -> None:
    cluster = Cluster(simulation)
    rng = simulation.stream("growing")
    cluster.start(range(1, 4))

    async def create() -> None:
        async with cluster.client() as client:
            await client.admin.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replication_factor=3,
                configs={"min.insync.replicas": "2"},
            )

    await asyncio.sleep(3)
    await on_client(cluster, create())
    stop, calm = asyncio.Event(), asyncio.Event()
    producing = cluster.machine.start(cluster.produce(stop))
    await asyncio.sleep(3)
    cluster.start(range(4, MOST + 1))
    await asyncio.sleep(5)
    crashing = asyncio.create_task(crash_some(cluster, rng, calm)) if crashes else None
    # The operator's command is interrupted, and run again.
    for _ in range(3):
        with contextlib.suppress(KafkaError):
            await on_client(cluster, run_plan(cluster, interrupted_after_s=rng.uniform(0.5, 3)))
    calm.set()
    if crashing is not None:
        await crashing
        await asyncio.sleep(10)
    await on_client(cluster, until_done(cluster))
    assert_balanced(await on_client(cluster, loads(cluster)), range(1, MOST + 1))
    assert await on_client(cluster, throttled_topics(cluster)) == []
    leaving = range(LEAST + 1, MOST + 1)
    await on_client(cluster, until_done(cluster, drain=leaving))
    found = await on_client(cluster, loads(cluster))
    assert all(found[broker] == Load() for broker in leaving)
    assert_balanced(found, range(1, LEAST + 1))
    for broker in leaving:
        cluster.nodes[f"n{broker}"].crash(power_loss=True)
    await asyncio.sleep(2)
    stop.set()
    await producing
    read = await on_client(cluster, cluster.read_back())
    assert all(sent <= got for sent, got in zip(cluster.acknowledged, read, strict=True))
    assert cluster.ended == []


@pytest.mark.more
@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
def test_a_cluster_grows_and_shrinks(crashes: bool) -> None:
    simulation = Simulation(7)
    simulation.run(grow_and_shrink(simulation, crashes=crashes))
