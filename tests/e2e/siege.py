"""Hostile clients of a broker, all at once, in a process of their own.

    python -m tests.e2e.siege HOST:PORT IDLE HALF_SENT HEARTBEAT_TOPICS

- IDLE connections that send nothing.
- HALF_SENT connections that send 263 KB of a request of a megabyte; a closed one is opened again.
- Two connections that send Metadata of all topics ahead and read, and two that do not read.
- A connection that sends ConsumerGroupHeartbeat with HEARTBEAT_TOPICS topic names again and again.

It prints "ready" when the idle and half-sent connections are open. The end of stdin ends it; then
it prints what it did as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import struct
import sys
from collections import Counter
from typing import cast

from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.metadata import MetadataRequest
from tests.e2e.raw_connection import encoded

HALF_BYTES = 263 * 1024
METADATA_AHEAD = 50
REOPEN_S = 1.0
HEARTBEAT_PAUSE_S = 0.25
ALL_TOPICS = encoded(MetadataRequest(topics=None), 12)


class Siege:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        self.done: Counter[str] = Counter()

    async def open(self, client: asyncio.Protocol) -> None:
        for _attempt in range(20):
            try:
                await asyncio.get_running_loop().create_connection(lambda: client, *self._address)
                return
            except OSError:
                await asyncio.sleep(REOPEN_S)
        self.done["not opened"] += 1

    def reopen(self, client: asyncio.Protocol) -> None:
        async def later() -> None:
            await asyncio.sleep(REOPEN_S)
            await self.open(client)

        self.spawn(later())

    def spawn(self, work: object) -> None:
        task = asyncio.ensure_future(cast("asyncio.Future[None]", work))
        self._tasks.add(cast("asyncio.Task[None]", task))
        task.add_done_callback(lambda done: self._tasks.discard(cast("asyncio.Task[None]", done)))


class Idle(asyncio.Protocol):
    def __init__(self, siege: Siege) -> None:
        self._siege = siege

    def connection_made(self, _transport: asyncio.BaseTransport) -> None:
        self._siege.done["idle opened"] += 1

    def connection_lost(self, _error: Exception | None) -> None:
        self._siege.done["idle lost"] += 1


class HalfSent(asyncio.Protocol):
    def __init__(self, siege: Siege) -> None:
        self._siege = siege

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._siege.done["half-sent requests"] += 1
        transport = cast(asyncio.Transport, transport)
        transport.write(struct.pack(">i", 1024 * 1024) + bytes(HALF_BYTES))

    def connection_lost(self, _error: Exception | None) -> None:
        self._siege.done["half-sent requests closed"] += 1
        self._siege.reopen(self)


class Metadata(asyncio.Protocol):
    """Counts the bytes of the responses and their number, without a copy of them."""

    def __init__(self, siege: Siege, *, reads: bool) -> None:
        self._siege = siege
        self._reads = reads
        self._size = bytearray()
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._size.clear()
        self._left = 0
        self._transport.write(ALL_TOPICS * METADATA_AHEAD)
        if not self._reads:
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            if not self._left:
                wanted = 4 - len(self._size)
                self._size += data[position : position + wanted]
                position += wanted
                if len(self._size) == 4:
                    self._left = struct.unpack(">i", self._size)[0]
                    self._size.clear()
                continue
            taken = min(self._left, len(data) - position)
            self._left -= taken
            position += taken
            if not self._left:
                self._siege.done["metadata responses"] += 1
                self._transport.write(ALL_TOPICS)

    def connection_lost(self, _error: Exception | None) -> None:
        self._siege.reopen(self)


class Heartbeat(asyncio.Protocol):
    def __init__(self, siege: Siege, topics: int) -> None:
        self._siege = siege
        self._request = encoded(
            ConsumerGroupHeartbeatRequest(
                group_id="siege",
                member_id="a" * 22,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=tuple(f"a-topic-with-number-{n}" for n in range(topics)),
                topic_partitions=(),
            ),
            0,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, _data: bytes) -> None:
        self._siege.done["heartbeat responses"] += 1
        asyncio.get_running_loop().call_later(
            HEARTBEAT_PAUSE_S, self._transport.write, self._request
        )

    def connection_lost(self, _error: Exception | None) -> None:
        self._siege.reopen(self)


async def besiege(bootstrap: str, idle: int, half_sent: int, topics: int) -> None:
    siege = Siege(bootstrap)
    for client in (
        *(Idle(siege) for _ in range(idle)),
        *(HalfSent(siege) for _ in range(half_sent)),
        *(Metadata(siege, reads=reads) for reads in (True, True, False, False)),
        Heartbeat(siege, topics),
    ):
        await siege.open(client)
    say("ready")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    say(json.dumps(siege.done))
    os._exit(0)  # thousands of connections and tasks need no orderly end


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(besiege(sys.argv[1], *map(int, sys.argv[2:5])))
