"""CPU time of the produce and fetch paths without sockets: the table of PROFILE.md.

Frames go into the `buffer_updated` of a real node's connections, responses into a transport that
drops them. The log is on a disk: tmpfs has no read that gives up instead of waiting. One node, one
partition, one connection a side; Produce v10 and Fetch v11 without a session, as librdkafka sends
them.

    python -m bench.request_paths [rounds]                       this checkout alone
    python -m bench.request_paths [rounds] --beside OTHER/src    both, alternating

Each round is a fresh process that measures every path in several series, and keeps the fastest;
the table has the least and the median of all rounds.
`--beside` names the `src` of another checkout, which is put on PYTHONPATH.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

# Requests of one series, and series of each path in one process, of which the first warms up.
REQUESTS = 60
SERIES = 10
PATHS = (
    "Produce, one 100-B record",
    "the same, ten frames a read",
    "Produce, one 16-KB batch",
    "Fetch, answered at once",
    "Fetch that waits, and the Produce that wakes it",
)
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={directory}
"""


class _DroppingTransport(asyncio.Transport):
    """Counts writes and drops them."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.writes = 0
        self._protocol = protocol

    def write(self, _data: Any) -> None:
        self.writes += 1

    def writelines(self, _data: Any) -> None:
        self.writes += 1

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    close = abort


class _CapturingNetwork:
    """Keeps the connection factory of the client listener."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.factories: list[Callable[[], Any]] = []

    async def listen(self, factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        self.factories.append(factory)
        return await self._network.listen(factory, *args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


class _Client:
    def __init__(self, factory: Callable[[], Any]) -> None:
        self._connection = factory()
        self.transport = _DroppingTransport(self._connection)
        self._connection.connection_made(self.transport)

    def send(self, frame: bytes) -> None:
        # Usually at once. If a turn ended early, frames are left, and there is less room.
        while frame:
            room = self._connection.get_buffer(-1)
            count = min(len(room), len(frame))
            room[:count] = frame[:count]
            self._connection.buffer_updated(count)
            frame = frame[count:]

    async def responded(self, count: int) -> None:
        while self.transport.writes < count:
            await asyncio.sleep(0)
        self.transport.writes = 0


def _measure_all() -> dict[str, float]:
    """Return µs of CPU time per request of each path."""
    from penstock import start
    from penstock.config.node import read_node_config
    from penstock.world import World
    from penstock.world.real import RealDisk, run

    async def main(world: World) -> dict[str, float]:
        network: Any = _CapturingNetwork(world.network)
        async with start.serving(replace(world, network=network), config):
            return await _paths(network.factories[0])

    with tempfile.TemporaryDirectory() as directory:
        config = read_node_config(_PROPERTIES.format(directory=directory).encode(), "bench")
        format_directories = _find(
            "penstock.node.broker.formatting:format_directories",
            "penstock.node.formatting:format_directories",
        )
        rng = _find("penstock.world.real:RealRng", "penstock.world.real:RealChance")
        format_directories(
            RealDisk(), rng(), config, None, ignore_formatted=False, say=lambda *_: None
        )
        return run(main)


def _find(*names: str) -> Any:
    """Import a name that differs between the checkouts that are compared."""
    for name in names:
        module, attribute = name.split(":")
        with suppress(ImportError, AttributeError):
            return getattr(import_module(module), attribute)
    raise ImportError(" or ".join(names))


async def _paths(factory: Callable[[], Any]) -> dict[str, float]:
    from penstock.protocol.framing import frame_request
    from penstock.protocol.messages.create_topics import CreateTopicsRequest
    from penstock.protocol.messages.fetch import FetchRequest
    from penstock.protocol.messages.produce import ProduceRequest
    from penstock.records.build import build_batch

    def frame(request: object, version: int) -> bytes:
        return b"".join(cast("list[bytes]", frame_request(request, version, 7, "bench")))

    def produce(batch: bytes) -> bytes:
        data = ProduceRequest.TopicData.PartitionData(index=0, records=batch)
        topic = ProduceRequest.TopicData(name="t", partition_data=(data,))
        return frame(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,)), 10)

    def fetch(offset: int) -> bytes:
        partition = FetchRequest.Topic.Partition(
            partition=0, fetch_offset=offset, partition_max_bytes=1024 * 1024
        )
        topic = FetchRequest.Topic(topic="t", partitions=(partition,))
        return frame(
            FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=50 * 1024 * 1024,
                session_id=0,
                session_epoch=-1,
                topics=(topic,),
            ),
            11,
        )

    now = int(time.time() * 1000)
    small = produce(build_batch([(None, b"v" * 100, (), now)]))
    large = produce(build_batch([(None, b"v" * 1000, (), now)] * 16))
    producer, consumer = _Client(factory), _Client(factory)
    producer.send(
        frame(
            CreateTopicsRequest(
                topics=(
                    CreateTopicsRequest.Topic(name="t", num_partitions=1, replication_factor=1),
                ),
                timeout_ms=5000,
            ),
            7,
        )
    )
    await producer.responded(1)
    end = 0

    async def produce_one() -> None:
        nonlocal end
        producer.send(small)
        await producer.responded(1)
        end += 1

    async def produce_ten() -> None:
        nonlocal end
        producer.send(small * 10)
        await producer.responded(1)
        end += 10

    async def produce_large() -> None:
        nonlocal end
        producer.send(large)
        await producer.responded(1)
        end += 16

    fetches: dict[int, bytes] = {}

    def fetch_frame(offset: int) -> bytes:
        return fetches.get(offset) or fetches.setdefault(offset, fetch(offset))

    async def fetch_one() -> None:
        consumer.send(fetch_frame(end - 1))
        await consumer.responded(1)

    async def fetch_waiting() -> None:
        nonlocal end
        consumer.send(fetches[end])
        producer.send(small)
        await consumer.responded(1)
        producer.transport.writes = 0
        end += 1

    async def timed(step: Callable[[], Coroutine[Any, Any, None]], per_step: int = 1) -> float:
        least = float("inf")
        for _ in range(SERIES):
            began = time.thread_time()
            for _ in range(REQUESTS):
                await step()
            least = min(least, time.thread_time() - began)
        return least / REQUESTS / per_step * 1e6

    figures = [
        await timed(produce_one),
        await timed(produce_ten, 10),
        await timed(produce_large),
    ]
    await produce_one()
    figures.append(await timed(fetch_one))
    for offset in range(end, end + SERIES * REQUESTS):
        fetch_frame(offset)
    figures.append(await timed(fetch_waiting))
    return dict(zip(PATHS, figures, strict=True))


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--once"]:
        print("\n".join(map(str, _measure_all().values())))
        return
    sources = [str(Path(__file__).parent.parent / "src")]
    if "--beside" in arguments:
        at = arguments.index("--beside")
        sources.insert(0, arguments[at + 1])
        del arguments[at : at + 2]
    rounds = int(arguments[0]) if arguments else 20
    figures: dict[str, list[list[float]]] = {source: [] for source in sources}
    for _ in range(rounds):
        for source in sources:
            done = subprocess.run(
                [sys.executable, "-m", "bench.request_paths", "--once"],
                env={**os.environ, "PYTHONPATH": source},
                cwd=Path(__file__).parent.parent,
                capture_output=True,
                text=True,
                check=True,
            )
            figures[source].append([float(line) for line in done.stdout.split()])
    print("| a request, µs of CPU: least (median) |", " | ".join(sources), "|")
    print("|---|" + "---|" * len(sources))
    for number, path in enumerate(PATHS):
        cells = []
        for source in sources:
            column = [figure[number] for figure in figures[source]]
            cells.append(f"{min(column):.0f} ({statistics.median(column):.0f})")
        print(f"| {path} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
