"""What a scrape of the metrics costs the event loop of a node with many partitions.

`python -m bench.scrape [partitions]` creates topics of 100 partitions in a node in this process,
writes a record to each tenth partition, and collects pages without and with the series of
partitions. It prints the size of the page, the CPU time of the event loop, and the longest turn.
The garbage collector is set as that of a node.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from typing import Any

from bench.metrics_cost import PROPERTIES
from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.limits import FULL_COLLECTION_EVERY
from penstock.metrics import turn as turn_module
from penstock.node.broker.formatting import format_directories
from penstock.server.metrics import listener as listener_module
from penstock.server.metrics.listener import MetricsListener
from penstock.start import serving
from penstock.world import World
from penstock.world.real import run

ROUNDS = 10
_PER_TOPIC = 100


class MeasuredTurn(turn_module.Turn):
    """Remembers how long the event loop was held, in seconds of CPU time."""

    turns: list[float]

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.turns = []
        self._began = time.thread_time()

    async def pause(self) -> None:
        count, held = self.count, time.thread_time() - self._began
        await super().pause()
        if self.count != count:
            self.turns.append(held)
            self._began = time.thread_time()


async def _measure(listener: MetricsListener, *, per_partition: bool) -> str:
    longest, total, size, count = 0.0, float("inf"), 0, 0
    for _ in range(ROUNDS):
        made: list[MeasuredTurn] = []

        def make(clock: Any, made: list[MeasuredTurn] = made) -> MeasuredTurn:
            made.append(MeasuredTurn(clock))
            return made[-1]

        setattr(listener_module, "Turn", make)  # noqa: B010
        size = len(await listener.collect(per_partition=per_partition))
        (turn,) = made
        last = time.thread_time() - turn._began
        longest = max(longest, *turn.turns, last)
        total = min(total, sum(turn.turns) + last)
        count = turn.count
        await asyncio.sleep(0.05)
    return (
        f"{size / 1e6:.2f} MB, {total * 1000:.1f} ms of the event loop in {count} turns, the "
        f"longest of {ROUNDS} scrapes {longest * 1000:.1f} ms"
    )


async def main(world: World, partitions: int, directory: str) -> None:
    config = read_node_config(PROPERTIES.format(directory=directory).encode(), "bench")
    format_directories(
        world.disk, world.rng, config, None, ignore_formatted=False, say=lambda *_: None
    )
    listeners: list[MetricsListener] = []
    start = MetricsListener.start

    async def started(self: MetricsListener) -> None:
        listeners.append(self)
        await start(self)

    MetricsListener.start = started  # type: ignore[method-assign]
    async with serving(world, config) as (node, bootstrap), Client(world, bootstrap) as client:
        for number in range(partitions // _PER_TOPIC):
            await client.admin.create_topic(
                f"topic-{number}", partitions=_PER_TOPIC, replication_factor=1
            )
        async with client.producer() as producer:
            for number in range(0, partitions, 10):
                topic, index = divmod(number, _PER_TOPIC)
                await producer.send(f"topic-{topic}", b"x" * 100, partition=index)
        print(f"{len(node.replicas.partitions)} partitions")
        (listener,) = listeners
        await listener.collect(per_partition=False)  # imports
        gc.collect()
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_EVERY)
        print("page:", await _measure(listener, per_partition=False))
        print("with ?partitions=1:", await _measure(listener, per_partition=True))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        run(lambda world: main(world, int((sys.argv[1:] or ["10000"])[0]), temporary))
