"""What a scrape of the metrics costs the event loop of a node with many partitions.

`python -m bench.scrape [partitions [per topic]]` creates topics of 100 partitions in a node in this
process, writes a record to each tenth partition, and collects pages: without and with the series of
partitions, and with the lag of a group that has committed offsets of all partitions. Then it
computes the lag of a group whose partitions are led elsewhere; it encodes the requests to their
leaders and decodes the responses. It prints the size of the page, the CPU time that the scrape took
of the event loop, and its longest run without a pause. The garbage collector is set as that of a
node; a full collection may happen in a run.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType, SimpleNamespace
from typing import Any

from bench.metrics_cost import PROPERTIES
from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.coordinator.offsets.committed import Committed
from penstock.ids import TopicPartition
from penstock.limits import FULL_COLLECTION_EVERY
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, page
from penstock.metrics.turn import Turn
from penstock.node.broker.formatting import format_directories
from penstock.node.metrics.lag import LagSource
from penstock.node.metrics.remote_offsets import RemoteOffsets
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.records.build import build_batch
from penstock.server.metrics.listener import MetricsListener
from penstock.start import serving
from penstock.world import World
from penstock.world.real import run

ROUNDS = 10
_LIST_OFFSETS = 10


class Runs:
    """The runs of a scrape on the event loop, in seconds of CPU time."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    async def of(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, and time each of its steps."""
        return await _Steps(work, self.lengths)

    def factory(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        """Make tasks, and time those that sources of metrics start."""
        if isinstance(work, CoroutineType) and "/metrics/" in work.cr_code.co_filename:
            work = self.of(work)
        return asyncio.Task(work, loop=loop, **options)


class _Steps:
    def __init__(self, work: Coroutine[Any, Any, Any], lengths: list[float]) -> None:
        self._work = work
        self._lengths = lengths

    def __await__(self) -> Generator[Any, Any, Any]:
        while True:
            began = time.thread_time()
            try:
                waits_for = self._work.send(None)
            except StopIteration as ended:
                return ended.value
            finally:
                self._lengths.append(time.thread_time() - began)
            yield waits_for


async def _measure(collect: Callable[[], Coroutine[Any, Any, bytes]]) -> str:
    longest, total, size, count = 0.0, float("inf"), 0, 0
    loop = asyncio.get_running_loop()
    for _ in range(ROUNDS):
        runs = Runs()
        loop.set_task_factory(runs.factory)
        size = len(await runs.of(collect()))
        loop.set_task_factory(None)
        longest = max(longest, *runs.lengths)
        if sum(runs.lengths) < total:
            total, count = sum(runs.lengths), len(runs.lengths)
        await asyncio.sleep(0.05)
    return (
        f"{size / 1e6:.2f} MB, {total * 1000:.1f} ms of the event loop in {count} runs, the "
        f"longest of {ROUNDS} scrapes {longest * 1000:.1f} ms"
    )


def _remote_lag(world: World, partitions: int) -> Callable[[], Coroutine[Any, Any, bytes]]:
    """Return a scrape of the lag of one group whose partitions other brokers lead."""
    names = [TopicPartition(f"topic-{n // 100}", n % 100) for n in range(partitions)]
    topics: dict[str, Any] = {}
    for topic, index in names:
        found = topics.setdefault(topic, SimpleNamespace(partitions={}))
        found.partitions[index] = SimpleNamespace(leader=2 + index % 2)
    ends = 100
    batch = build_batch([(None, b"x", (), 1)])

    async def answer(data: bytes) -> bytes:
        sent = decode(ListOffsetsRequest, _LIST_OFFSETS, data)
        part = ListOffsetsResponse.Topic
        response = ListOffsetsResponse(
            topics=tuple(
                part(
                    name=topic.name,
                    partitions=tuple(
                        part.Partition(partition_index=each.partition_index, offset=ends)
                        for each in topic.partitions
                    ),
                )
                for topic in sent.topics
            )
        )
        return encode_bytes(response, _LIST_OFFSETS)

    async def call(request: Any, _response: Any, max_version: int | None = None) -> Any:
        if max_version is not None:  # a fetch, for the timestamp of a record
            part = FetchResponse.Response
            return FetchResponse(responses=(part(partitions=(part.Partition(records=batch),)),))
        # In a task, which is not timed: the leader is another process.
        leader = asyncio.create_task(answer(encode_bytes(request, _LIST_OFFSETS)))
        return decode(ListOffsetsResponse, _LIST_OFFSETS, await leader)

    async def connection(_leader: int) -> Any:
        return SimpleNamespace(call=call)

    metadata: Any = SimpleNamespace(image=SimpleNamespace(topics=topics))
    remote = RemoteOffsets(world, 1, metadata)
    setattr(remote, "_connection", connection)  # noqa: B010
    committed = {name: Committed(ends, -1, "", 0) for name in names}
    offsets = SimpleNamespace(of_group=lambda _group: committed)
    machine = SimpleNamespace(groups=SimpleNamespace(by_id={"group": None}, offsets=offsets))
    groups: Any = SimpleNamespace(machines=[machine])
    replicas: Any = SimpleNamespace(
        partitions={},
        exists=lambda name: name.topic in topics,
        store=SimpleNamespace(directories=()),
    )
    source = LagSource(world, 1, groups, replicas, remote, Reads(world))

    async def collect() -> bytes:
        nonlocal ends
        samples, turn = Samples(), Turn(world.clock)
        await source(samples, turn)
        ends += 10
        return await page(samples, turn)

    return collect


async def main(world: World, directory: str, partitions: int, per_topic: int) -> None:
    properties = PROPERTIES.format(directory=directory) + "offsets.topic.replication.factor=1\n"
    config = read_node_config(properties.encode(), "bench")
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
        names = []
        for number in range(partitions // per_topic):
            topic = f"topic-{number}"
            await client.admin.create_topic(topic, partitions=per_topic, replication_factor=1)
            names += [TopicPartition(topic, index) for index in range(per_topic)]
        async with client.producer() as producer:
            for topic, index in names[::10]:
                await producer.send(topic, b"x" * 100, partition=index)
        print(f"{len(node.replicas.partitions)} partitions")
        (listener,) = listeners

        async def report(text: str, collect: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
            await collect()  # imports
            gc.collect()
            gc.freeze()
            gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_EVERY)
            print(f"{text}: {await _measure(collect)}")

        await report("page", lambda: listener.collect(per_partition=False))
        await report("with ?partitions=1", lambda: listener.collect(per_partition=True))
        for number in range(0, len(names), 1_000):
            offsets = dict.fromkeys(names[number : number + 1_000], OffsetAndMetadata(0))
            await client.groups.commit_offsets("group", offsets)
        await report(
            "with a group that reads all partitions",
            lambda: listener.collect(per_partition=False),
        )
        await report(
            "lag of a group whose partitions are led elsewhere", _remote_lag(world, partitions)
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sizes = [int(text) for text in sys.argv[1:]] + [10_000, 100][len(sys.argv) - 1 :]
        run(lambda world: main(world, temporary, *sizes))
