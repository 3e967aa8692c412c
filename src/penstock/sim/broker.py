"""One broker under a client's load, killed and cut from power (rules 1, 3, 4, 5, 6, 25).

With log.flush.interval.messages=1 an acknowledged record is on the disk. At the end a fresh
consumer reads everything from offset 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from functools import partial

from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.errors import ConnectionFailed
from penstock.client.producer.accumulator import RecordMetadata
from penstock.client.producer.producer import Producer
from penstock.config.node import NodeConfig, read_node_config
from penstock.ids import TopicPartition
from penstock.node.broker.formatting import format_directories
from penstock.sim.harness import InvariantViolated
from penstock.start import serving
from penstock.world import World
from penstock.world.sim import Node, Simulation

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://broker:9092,CONTROLLER://broker:9093
controller.listener.names=CONTROLLER
log.dirs=/d0,/d1
log.flush.interval.messages=1
"""
TOPIC = "numbers"
PARTITIONS = 2
SETTLED_WITHIN_S = 120


def run_broker(seed: int) -> str:
    """Run one seed and return the digest of its trace. Raise InvariantViolated if a rule does not
    hold."""
    simulation = Simulation(seed, trace_lines=40)
    try:
        simulation.run(BrokerRun(simulation).main())
    except Exception as error:
        tail = "\n".join(simulation.trace.lines())
        raise InvariantViolated(
            f"broker seed {seed}: {error!r}\nthe end of the trace:\n{tail}\n"
            f"repeat with: python -m penstock.sim --seed {seed}"
        ) from error
    return simulation.trace.digest()


class BrokerRun:
    def __init__(self, simulation: Simulation) -> None:
        self.rng: random.Random = simulation.stream("workload")
        self.broker: Node = simulation.node("broker")
        self.client: Node = simulation.node("client")
        self.trace = simulation.trace
        # (partition, offset) -> acknowledged value
        self.acknowledged: dict[tuple[int, int], bytes] = {}

    async def main(self) -> None:
        config = read_node_config(PROPERTIES.encode(), "simulation")
        format_directories(
            self.broker.world.disk,
            self.broker.world.rng,
            config,
            "cluster",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        self.broker.world.disk.sync_dir("/")
        self._start(config)
        await self.client.run(self._create())
        producers = [self.client.start(self._produce(number)) for number in range(2)]
        for _crash in range(self.rng.randrange(1, 4)):
            await asyncio.sleep(self.rng.random() * 3)
            self.broker.crash(power_loss=self.rng.random() < 0.7)
            await asyncio.sleep(self.rng.random() * 2)
            self.broker.restart()
            self._start(config)
        async with asyncio.timeout(SETTLED_WITHIN_S):
            await asyncio.gather(*producers)
        self._check(await self.client.run(self._read_all()))

    def _start(self, config: NodeConfig) -> None:
        self.broker.start(self._serve(self.broker.world, config))

    async def _serve(self, world: World, config: NodeConfig) -> None:
        async with serving(world, config):
            await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """Connect a client, retrying until the broker is available."""
        while True:
            client = Client(self.client.world, "broker:9092", request_timeout_s=5)
            try:
                await client.__aenter__()
                break
            except ConnectionFailed:
                await asyncio.sleep(0.1)
        try:
            yield client
        finally:
            await client.__aexit__(None, None, None)

    async def _create(self) -> None:
        async with self._connected() as client:
            await client.admin.create_topic(TOPIC, partitions=PARTITIONS)

    async def _produce(self, number: int) -> None:
        """Send numbered records, several in flight, with an idempotent producer."""
        async with (
            self._connected() as client,
            client.producer(delivery_timeout_s=SETTLED_WITHIN_S, linger_s=0.01) as producer,
        ):
            for count in range(self.rng.randrange(20, 80)):
                value = f"{number}:{count}".encode()
                future = await self._send(producer, value)
                future.add_done_callback(partial(self._on_delivery, value))
                await asyncio.sleep(self.rng.random() * 0.15)

    async def _send(self, producer: Producer, value: bytes) -> asyncio.Future[RecordMetadata]:
        """Send one record. The first send fetches metadata, and fails if the broker is down; then
        nothing was sent, and it is safe to retry."""
        partition = self.rng.randrange(PARTITIONS)
        while True:
            try:
                return await producer.send(TOPIC, value, partition=partition)
            except ConnectionFailed:
                await asyncio.sleep(0.1)

    def _on_delivery(self, value: bytes, delivery: asyncio.Future[RecordMetadata]) -> None:
        """Record an acknowledgement. The broker may answer a retry of an old record without an
        offset; `_check` still finds it if it is duplicated."""
        if delivery.cancelled() or delivery.exception() is not None:
            return
        delivered = delivery.result()
        if delivered.offset >= 0:
            self.acknowledged[delivered.partition, delivered.offset] = value
            self.trace.note("acknowledged", delivered.partition, delivered.offset, value.decode())

    async def _read_all(self) -> dict[tuple[int, int], bytes]:
        records: dict[tuple[int, int], bytes] = {}
        async with self._connected() as client, client.consumer() as consumer:
            await consumer.assign(
                {TopicPartition(TOPIC, index): BEGINNING for index in range(PARTITIONS)}
            )
            ends = await consumer.end_offsets()
            while any(consumer.positions[partition] < end for partition, end in ends.items()):
                for record in await consumer.poll():
                    records[record.partition, record.offset] = record.value or b""
        return records

    def _check(self, records: dict[tuple[int, int], bytes]) -> None:
        for position, value in self.acknowledged.items():
            if records.get(position) != value:
                raise InvariantViolated(
                    f"{value!r} was acknowledged at {position}, but {records.get(position)!r} is "
                    "there (rules 1 and 3)"
                )
        for partition in range(PARTITIONS):
            offsets = sorted(offset for index, offset in records if index == partition)
            if offsets != list(range(len(offsets))):
                raise InvariantViolated(
                    f"the offsets of partition {partition} are not dense: {offsets} (rule 6)"
                )
            for producer in ("0", "1"):
                numbers = [
                    int(value.split(b":")[1])
                    for value in self._values(records, partition)
                    if value.startswith(producer.encode() + b":")
                ]
                if numbers != sorted(set(numbers)):
                    raise InvariantViolated(
                        f"producer {producer} sent each number once and in order, but partition "
                        f"{partition} has {numbers} (rules 4 and 5)"
                    )

    def _values(self, records: dict[tuple[int, int], bytes], partition: int) -> list[bytes]:
        return [value for (index, _offset), value in sorted(records.items()) if index == partition]
