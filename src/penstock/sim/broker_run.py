"""One broker under a real client's load, killed and cut from power (invariants 1, 3, 4, 5, 6, 25).

With log.flush.interval.messages=1 an acknowledgement means that the record is on the disk. At the
end a fresh consumer reads everything from offset 0.
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
from penstock.sim.log.model import Broken
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
    """One run. Gives the digest of its trace; Broken where an invariant does not hold."""
    simulation = Simulation(seed, trace_lines=40)
    try:
        simulation.run(BrokerRun(simulation).main())
    except Exception as error:
        tail = "\n".join(simulation.trace.lines())
        raise Broken(
            f"broker seed {seed}: {error!r}\nthe last events:\n{tail}\nagain with: python -m "
            f"penstock.sim --seed {seed}"
        ) from error
    return simulation.trace.digest()


class BrokerRun:
    def __init__(self, simulation: Simulation) -> None:
        self.rng: random.Random = simulation.stream("workload")
        self.broker: Node = simulation.node("broker")
        self.client: Node = simulation.node("client")
        self.trace = simulation.trace
        # (partition, offset) -> value, as acknowledged.
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.producing = 0

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
        self.producing = len(producers)
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
        """A client that waits until there is a broker."""
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
        """Numbered records, several in flight; idempotent, so that a retry is no duplicate."""
        async with (
            self._connected() as client,
            client.producer(delivery_timeout_s=SETTLED_WITHIN_S, linger_s=0.01) as producer,
        ):
            for count in range(self.rng.randrange(20, 80)):
                value = f"{number}:{count}".encode()
                future = await self._send(producer, value)
                future.add_done_callback(partial(self._note, value))
                await asyncio.sleep(self.rng.random() * 0.15)

    async def _send(self, producer: Producer, value: bytes) -> asyncio.Future[RecordMetadata]:
        """A producer that does not know the topic yet asks for it, and gives up where nobody
        answers: nothing was sent then."""
        partition = self.rng.randrange(PARTITIONS)
        while True:
            try:
                return await producer.send(TOPIC, value, partition=partition)
            except ConnectionFailed:
                await asyncio.sleep(0.1)

    def _note(self, value: bytes, done: asyncio.Future[RecordMetadata]) -> None:
        """A record that a retry found written long before has no offset: that it is there once is
        checked all the same."""
        if not done.cancelled() and done.exception() is None and done.result().offset >= 0:
            delivered = done.result()
            self.acknowledged[delivered.partition, delivered.offset] = value
            self.trace.note("acknowledged", delivered.partition, delivered.offset, value.decode())

    async def _read_all(self) -> dict[tuple[int, int], bytes]:
        found: dict[tuple[int, int], bytes] = {}
        async with self._connected() as client, client.consumer() as consumer:
            await consumer.assign(
                {TopicPartition(TOPIC, index): BEGINNING for index in range(PARTITIONS)}
            )
            ends = await consumer.end_offsets()
            while any(consumer.positions[partition] < end for partition, end in ends.items()):
                for record in await consumer.poll():
                    found[record.partition, record.offset] = record.value or b""
        return found

    def _check(self, found: dict[tuple[int, int], bytes]) -> None:
        for place, value in self.acknowledged.items():
            if found.get(place) != value:
                raise Broken(
                    f"{value!r} was acknowledged at {place}, but {found.get(place)!r} is there "
                    "(invariants 1 and 3)"
                )
        for partition in range(PARTITIONS):
            offsets = sorted(offset for index, offset in found if index == partition)
            if offsets != list(range(len(offsets))):
                raise Broken(
                    f"the offsets of partition {partition} are not dense: {offsets} (invariant 6)"
                )
            for producer in ("0", "1"):
                numbers = [
                    int(value.split(b":")[1])
                    for value in self._values(found, partition)
                    if value.startswith(producer.encode() + b":")
                ]
                if numbers != sorted(set(numbers)):
                    raise Broken(
                        f"producer {producer} sent in order and once, but partition {partition} "
                        f"has {numbers} (invariants 4 and 5)"
                    )

    def _values(self, found: dict[tuple[int, int], bytes], partition: int) -> list[bytes]:
        return [value for (index, _offset), value in sorted(found.items()) if index == partition]
