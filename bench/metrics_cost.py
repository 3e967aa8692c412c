"""What counting for metrics costs a produce and a fetch: on and off in turn, in one process.

`python -m bench.metrics_cost [series]` sends frames into two connections of one node, of which one
counts its requests and the other does not, and alternates between them every some dozen requests.
Both have the same machine, caches and load, so that the median of the differences is meaningful
even while other processes run. Prints the median CPU time of a request, and the difference.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

from bench.request_paths import _CapturingNetwork, _Client
from penstock import start
from penstock.config.node import read_node_config
from penstock.node.broker.formatting import format_directories
from penstock.protocol.framing import frame_request
from penstock.protocol.messages.create_topics import CreateTopicsRequest
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.messages.produce import ProduceRequest
from penstock.records.build import build_batch
from penstock.world import World
from penstock.world.real import RealDisk, RealRng, run

REQUESTS = 40
SERIES = 400
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={directory}
penstock.metrics.listener=http://127.0.0.1:0
"""
Step = Callable[[], Coroutine[Any, Any, None]]


def _frame(request: object, version: int) -> bytes:
    return b"".join(cast("list[bytes]", frame_request(request, version, 7, "bench")))


def _produce() -> bytes:
    batch = build_batch([(None, b"v" * 100, (), int(time.time() * 1000))])
    data = ProduceRequest.TopicData.PartitionData(index=0, records=batch)
    topic = ProduceRequest.TopicData(name="t", partition_data=(data,))
    return _frame(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,)), 10)


def _fetch() -> bytes:
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=0, partition_max_bytes=1024 * 1024
    )
    topic = FetchRequest.Topic(topic="t", partitions=(partition,))
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1024, session_epoch=-1, topics=(topic,)
    )
    return _frame(request, 11)


def _create() -> bytes:
    topic = CreateTopicsRequest.Topic(name="t", num_partitions=1, replication_factor=1)
    return _frame(CreateTopicsRequest(topics=(topic,), timeout_ms=5000), 7)


async def _compare(name: str, on: Step, off: Step, series: int) -> None:
    async def timed(step: Step) -> float:
        began = time.thread_time()
        for _ in range(REQUESTS):
            await step()
        return (time.thread_time() - began) / REQUESTS * 1e6

    counted: list[float] = []
    plain: list[float] = []
    for number in range(series):
        # Each is the first one in half of the pairs.
        for is_on in (number % 2 == 0, number % 2 == 1):
            (counted if is_on else plain).append(await timed(on if is_on else off))
            await asyncio.sleep(0.001)  # heartbeats
    base = statistics.median(plain)
    more = statistics.median(a - b for a, b in zip(counted, plain, strict=True))
    print(f"{name}: {base:.1f} µs without counting, {more:+.2f} µs with it ({more / base:+.1%})")


async def main(world: World, directory: str, series: int) -> None:
    network: Any = _CapturingNetwork(world.network)
    config = read_node_config(PROPERTIES.format(directory=directory).encode(), "bench")
    format_directories(
        RealDisk(), RealRng(), config, None, ignore_formatted=False, say=lambda *_: None
    )
    async with start.serving(replace(world, network=network), config):
        counting, plain = _Client(network.factories[0]), _Client(network.factories[0])
        assert plain._connection._requests is not None
        plain._connection._requests = None
        counting.send(_create())
        await counting.responded(1)

        def sending(client: _Client, frame: bytes) -> Step:
            async def step() -> None:
                client.send(frame)
                await client.responded(1)

            return step

        for name, frame in (("Produce, one 100-B record", _produce()), ("Fetch", _fetch())):
            await _compare(name, sending(counting, frame), sending(plain, frame), series)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        count = int((sys.argv[1:] or [str(SERIES)])[0])
        run(lambda world: main(world, temporary, count))
