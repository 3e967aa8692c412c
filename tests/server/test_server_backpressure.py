"""Peers that do not read, and responses that do not fit into memory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.handlers.context import RequestContext
from penstock.limits import SEND_PIECE_BYTES
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.server.dispatch import Handler
from penstock.server.state import Bounds
from penstock.world import World
from tests.server.serving import (
    FETCH,
    HEARTBEAT,
    Client,
    Served,
    heartbeat,
    raw_request,
    respond_now,
    serving,
)
from tests.server.test_server_order import until
from tests.world.both_worlds import Play

MEGABYTE = 1024 * 1024


@dataclass
class FakeFile:
    """A large file whose content is made when it is read."""

    size: int
    reads: list[int] = field(default_factory=list)

    def pread(self, length: int, position: int, /) -> bytes:
        self.reads.append(length)
        block = bytes(range(256))
        shift = position % 256
        return (block * (length // 256 + 2))[shift : shift + min(length, self.size - position)]

    def pread_at_once(self, length: int, position: int, /) -> bytes | None:
        return self.pread(length, position) if position + length <= self.size else None

    def in_memory(self, length: int, position: int, /) -> bool:
        return position + length <= self.size

    def bring_in(self, length: int, position: int, /) -> None:
        self.pread(length, position)

    def fileno(self) -> int:
        raise OSError("it has no descriptor")


@dataclass(frozen=True)
class FakeRange:
    file: FakeFile
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True)
class WholeRange:
    """A range that can only be read as a whole."""

    data: bytes

    def __len__(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data


# An empty Fetch v4 request: replica, max wait, min and max bytes, isolation, no topics.
FETCH_BODY = b"\xff\xff\xff\xff" + bytes(8) + b"\x7f\xff\xff\xff" + b"\x00" + bytes(4)


def fetch(correlation: int) -> bytes:
    return raw_request(FETCH, 4, correlation, FETCH_BODY)


def fetch_handler(*ranges: Any) -> Handler:
    partitions = tuple(
        FetchResponse.Response.Partition(partition_index=index, records=part)
        for index, part in enumerate(ranges)
    )
    response = FetchResponse(responses=(FetchResponse.Response(topic="t", partitions=partitions),))
    return lambda *_: response


def test_ranges_arrive_whole_and_in_place(play: Play) -> None:
    file = FakeFile(10 * MEGABYTE)
    expected = [file.pread(3 * MEGABYTE + 17, 1_000), b"whole", b"", file.pread(5, 77)]
    ranges = (
        FakeRange(file, 1_000, 3 * MEGABYTE + 17),
        WholeRange(b"whole"),
        FakeRange(file, 0, 0),
        FakeRange(file, 77, 5),
    )

    async def scenario(world: World) -> list[tuple[int, bytes]]:
        async with serving(
            world, {FETCH: fetch_handler(*ranges), HEARTBEAT: respond_now}
        ) as served:
            client = await served.connect()
            client.send(fetch(1), heartbeat(2), fetch(3))
            await client.wait_responses(3)
            return client.responses

    responses = play(scenario)
    assert [correlation for correlation, _ in responses] == [1, 2, 3]
    body = responses[0][1]
    assert hashlib.sha256(body).digest() == hashlib.sha256(responses[2][1]).digest()
    assert all(part in body for part in expected)
    assert len(body) < sum(map(len, expected)) + 200
    assert max(file.reads[2:]) == SEND_PIECE_BYTES


async def connect_deaf(served: Served) -> Client:
    """Connect a client that does not read. (uvloop ignores a pause within connection_made.)"""
    client = await served.connect()
    client.transport.pause_reading()
    return client


def test_a_large_range_is_read_only_as_the_peer_takes_it(play: Play) -> None:
    file = FakeFile(32 * MEGABYTE)

    async def scenario(world: World) -> tuple[int, list[int]]:
        async with serving(world, fetch_handlers(file)) as served:
            client = await connect_deaf(served)
            client.send(fetch(1), fetch(2), heartbeat(3))
            await until(lambda: file.reads)
            await asyncio.sleep(0.1)
            read = sum(file.reads)
            client.transport.resume_reading()
            return read, await client.wait_responses(3)

    read, order = play(scenario)
    assert read <= 12 * MEGABYTE  # the kernel buffers of both sides, and one piece
    assert order == [1, 2, 3]


def fetch_handlers(file: FakeFile) -> dict[int, Handler]:
    return {FETCH: fetch_handler(FakeRange(file, 0, file.size)), HEARTBEAT: respond_now}


def test_a_peer_that_never_reads_gets_no_more_responses_and_is_closed(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    def large(_node: Any, _request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        seen.append(context.correlation_id)
        return HeartbeatResponse()

    file = FakeFile(32 * MEGABYTE)

    async def scenario(world: World) -> tuple[int, int]:
        handlers: dict[int, Handler] = {
            FETCH: fetch_handler(FakeRange(file, 0, file.size)),
            HEARTBEAT: large,
        }
        async with serving(world, handlers, Bounds(max_idle_s=0.3)) as served:
            deaf, other = await connect_deaf(served), await served.connect()
            deaf.send(fetch(1), *(heartbeat(number) for number in range(2, 5_000)))
            other.send(heartbeat(1_000_000))
            assert await other.wait_responses(1) == [1_000_000]
            await until(lambda: served.server.counters.connections == 0)
            return sum(file.reads), len(seen)

    with caplog.at_level(logging.WARNING, "penstock.server"):
        read, handled = play(scenario)
    assert read <= 12 * MEGABYTE
    assert handled == 1  # that of the other client, and none behind the response that is not read
    assert "the peer read no responses" in caplog.text


def test_a_range_beyond_the_end_of_its_file_ends_the_connection(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    file = FakeFile(1_000)

    async def scenario(world: World) -> list[int]:
        async with serving(world, {FETCH: fetch_handler(FakeRange(file, 0, 2_000))}) as served:
            client = await served.connect()
            client.send(fetch(1))
            await client.wait_lost()
            return client.order

    assert play(scenario) == []
    assert "1000 of 2000 bytes" in caplog.text


@pytest.mark.parametrize("waiting", [1, 3])
def test_responses_behind_a_slow_one_count_as_in_flight(play: Play, waiting: int) -> None:
    """Responses of a megabyte each wait behind a long poll: they are bounded."""
    seen = []

    async def scenario(world: World) -> tuple[int, list[int]]:
        gate = asyncio.Event()

        async def wait() -> HeartbeatResponse:
            await gate.wait()
            return HeartbeatResponse()

        def first(*_: Any) -> Any:
            return wait()

        def second(*_: Any) -> FetchResponse:
            seen.append(1)
            part = FetchResponse.Response.Partition(records=bytes(MEGABYTE))
            return FetchResponse(responses=(FetchResponse.Response(topic="t", partitions=(part,)),))

        bounds = Bounds(max_inflight_bytes=3 * MEGABYTE)
        async with serving(world, {HEARTBEAT: first, FETCH: second}, bounds) as served:
            client = await served.connect()
            client.send(
                *(heartbeat(number) for number in range(waiting)),
                *(fetch(number) for number in range(waiting, 20)),
            )
            await until(lambda: len(seen) >= 3)
            await asyncio.sleep(0.05)
            before = len(seen)
            assert served.server.counters.connection_pauses == 1
            gate.set()
            return before, await client.wait_responses(20)

    assert play(scenario) == (3, list(range(20)))


def test_responses_that_the_peer_does_not_read_end_the_taking_of_requests(play: Play) -> None:
    """Small requests with large responses: those of a whole turn were gathered before any was
    written."""
    names = tuple(FetchResponse.Response(topic="t" * 200) for _ in range(5_000))
    seen = []

    def handle(*_: Any) -> FetchResponse:
        seen.append(1)
        return FetchResponse(responses=names)

    async def scenario(world: World) -> int:
        async with serving(world, {FETCH: handle, HEARTBEAT: respond_now}) as served:
            client, other = await connect_deaf(served), await served.connect()
            client.send(*(fetch(number) for number in range(100)))
            await until(lambda: seen)
            for number in range(100):
                other.send(heartbeat(number))
                await other.wait_responses(number + 1)
            return len(seen)

    assert play(scenario) <= 12  # the kernel buffers of both sides, and one response
