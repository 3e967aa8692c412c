"""Measures what survives when one, two or three of three machines lose power at once (rule 24).

Three nodes, each broker and controller, a topic with three replicas and min.insync.replicas=2, and
a producer with acks=all. Nothing that was not synced survives on a machine that loses power: real
disks and kernels keep some of it. `python -m tools.power_loss` prints the table.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.producer.accumulator import RecordMetadata
from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.nodes import ClusterNode, build_nodes
from penstock.world.sim import Simulation

MACHINES = 3
# The settings that decide when a record is on the disk, and what they mean.
FLUSH_SETTINGS = {
    "log.flush.interval.messages=1": "every append",
    "log.flush.interval.messages=100": "every 100 records of a partition",
    "log.flush.interval.ms=100": "every 100 ms",
    "log.flush.interval.ms=1000": "every second",
    "": "never; when a segment is full, and at a clean stop (the default)",
}
_TOPIC = "numbers"
_PARTITIONS = 3
_RECORD_EVERY_S = 0.005
_LOAD_S = 6.0
_HEALS_WITHIN_S = 120.0
_SETTLES_S = 12.0
_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://n{node_id}:9092,CONTROLLER://n{node_id}:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@n1:9093,2@n2:9093,3@n3:9093
log.dirs=/d0
default.replication.factor=3
min.insync.replicas=2
{flush}
"""


@dataclass(frozen=True, slots=True)
class Survival:
    """`oldest_lost_s` is how long before the loss of power the oldest lost record was
    acknowledged."""

    acknowledged: int
    lost: int
    oldest_lost_s: float
    # Seconds from the last restart until all replicas were in sync and read.
    healed_s: float


def lose_power(seed: int, flush: str, machines: int) -> Survival:
    """Run one seed: cut the power of so many machines at once, start them, and count."""
    simulation = Simulation(seed)
    return simulation.run(_PowerLossRun(simulation, flush, machines).main())


class _PowerLossRun:
    def __init__(self, simulation: Simulation, flush: str, machines: int) -> None:
        self._simulation, self._machines = simulation, machines
        self._rng = simulation.stream("power loss")
        self._client = simulation.node("client")
        self._bootstrap = ",".join(f"n{node_id}:9092" for node_id in range(1, MACHINES + 1))
        configs = {f"n{node_id}": _config(node_id, flush) for node_id in range(1, MACHINES + 1)}
        self._nodes: dict[str, ClusterNode] = build_nodes(
            simulation, configs, lambda _note: None, self._ended
        )
        # Value to the time of its acknowledgement.
        self._acknowledged: dict[bytes, float] = {}
        self._failures: list[str] = []

    async def main(self) -> Survival:
        for node in self._nodes.values():
            node.start()
        await self._client.run(self._create())
        producing = self._client.start(self._produce())
        await asyncio.sleep(_LOAD_S / 2 + self._rng.random() * _LOAD_S / 2)
        cut_at, acknowledged = self._simulation.now(), dict(self._acknowledged)
        victims = self._rng.sample(sorted(self._nodes), self._machines)
        for name in victims:
            self._nodes[name].machine.crash(power_loss=True, keep=0.0)
        producing.cancel()
        for name in victims:
            await asyncio.sleep(self._rng.random())
            self._nodes[name].restart()
        restarted_at = self._simulation.now()
        # Until then brokers may answer from metadata of before the loss of power.
        await asyncio.sleep(_SETTLES_S)
        found = await self._client.run(self._read_all())
        if self._failures:
            raise KafkaErrorOfNode("; ".join(self._failures))
        lost = [at for value, at in acknowledged.items() if value not in found]
        return Survival(
            len(acknowledged),
            len(lost),
            cut_at - min(lost) if lost else 0.0,
            self._simulation.now() - restarted_at,
        )

    def _ended(self, node_id: int, error: str) -> None:
        self._failures.append(f"node {node_id} ended: {error}")

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """Connect a client, retrying until a broker is available."""
        async with asyncio.timeout(_HEALS_WITHIN_S):
            while True:
                client = Client(self._client.world, self._bootstrap, request_timeout_s=5)
                try:
                    await client.__aenter__()
                    break
                except KafkaError:
                    await asyncio.sleep(0.1)
        try:
            yield client
        finally:
            await client.__aexit__(None, None, None)

    async def _create(self) -> None:
        while True:
            try:
                async with self._connected() as client:
                    await client.admin.create_topic(
                        _TOPIC, assignments=[(1, 2, 3), (2, 3, 1), (3, 1, 2)]
                    )
                    return
            except KafkaError:  # not enough brokers are registered yet
                await asyncio.sleep(0.1)

    async def _produce(self) -> None:
        async with (
            self._connected() as client,
            client.producer(delivery_timeout_s=_HEALS_WITHIN_S, linger_s=0.005) as producer,
        ):
            number = 0
            while True:
                value = b"%d" % number
                future = await producer.send(_TOPIC, value, partition=number % _PARTITIONS)
                future.add_done_callback(partial(self._on_delivery, value))
                number += 1
                await asyncio.sleep(_RECORD_EVERY_S)

    def _on_delivery(self, value: bytes, delivery: asyncio.Future[RecordMetadata]) -> None:
        if not delivery.cancelled() and delivery.exception() is None:
            self._acknowledged[value] = self._simulation.now()

    async def _read_all(self) -> set[bytes]:
        """Return every value, once all replicas of all partitions are in sync again."""
        values: set[bytes] = set()
        async with asyncio.timeout(_HEALS_WITHIN_S), self._connected() as client:
            while not await self._is_healed(client):
                await asyncio.sleep(0.1)
            async with client.consumer() as consumer:
                await consumer.assign(
                    {TopicPartition(_TOPIC, index): BEGINNING for index in range(_PARTITIONS)}
                )
                ends = await consumer.end_offsets()
                while any(consumer.positions[partition] < end for partition, end in ends.items()):
                    values.update(record.value or b"" for record in await consumer.poll())
        return values

    async def _is_healed(self, client: Client) -> bool:
        try:
            (topic,) = await client.admin.describe_partitions([_TOPIC])
        except KafkaError:
            return False
        return all(len(partition.isr) == MACHINES for partition in topic.partitions)


class KafkaErrorOfNode(Exception):
    """A node ended by itself, which a loss of power must not cause."""


def _config(node_id: int, flush: str) -> NodeConfig:
    text = _PROPERTIES.format(node_id=node_id, flush=flush)
    return read_node_config(text.encode(), f"node {node_id} of the simulation")
