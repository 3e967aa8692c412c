"""While memory is short, peers are closed for being slow, never for being large, and never if that
frees nothing. The others complete in turn."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from pathlib import Path

from penstock.limits import (
    CHECKED_MEMBERS_A_TURN,
    EVICTED_BYTES,
    EVICTIONS_A_TURN,
    MIN_FRAME_BYTES_PER_S,
    REQUEST_WINDOW_S,
    SHORT_READ_BYTES,
)
from penstock.server.dispatch import Handler
from penstock.server.memory import Memory
from penstock.server.progress import Progress
from penstock.server.sockets import untaken_bytes
from penstock.server.state import Bounds
from penstock.world import World
from penstock.world.real import RealDisk, run
from tests.server.serving import FETCH, HEARTBEAT, Client, Served, heartbeat, respond_now, serving
from tests.server.test_server_backpressure import fetch, fetch_handler
from tests.server.test_server_memory import MEGABYTE, memory
from tests.server.test_server_order import until
from tests.server.test_server_ranges import Range, SpiedFile
from tests.server.test_server_stalled import run_simulated

STEP_S = 0.05


def padded(correlation: int, size: int) -> bytes:
    """Return a heartbeat with bytes after it, which are ignored."""
    small = heartbeat(correlation)
    return struct.pack(">i", size) + small[4:] + bytes(size - len(small) + 4)


async def upload(client: Client, data: bytes, bytes_per_s: float) -> list[int]:
    step = int(bytes_per_s * STEP_S)
    for start in range(0, len(data), step):
        client.send(data[start : start + step])
        await asyncio.sleep(STEP_S)
    return await client.wait_responses(1)


async def trickle(served: Served, held: int) -> None:
    """Send the first bytes of a request, then single bytes; connect again when closed."""
    while True:
        client = await served.connect()
        client.send(struct.pack(">i", 900_000) + bytes(held - 4))
        while not client.lost.is_set():
            await asyncio.sleep(0.15)
            client.send(b"\0")


def under_attack(attackers: int, held: int) -> tuple[list[list[int]], float]:
    """Send large requests one after the other for some seconds, while others trickle. Return the
    responses, and the longest time that one took."""

    async def scenario(world: World) -> tuple[list[list[int]], float]:
        async with serving(world, respond_now, Bounds(max_node_inflight_bytes=MEGABYTE)) as served:
            hostile = [asyncio.ensure_future(trickle(served, held)) for _ in range(attackers)]
            await until(lambda: memory(served).short)
            answers, start, longest = [], world.clock.monotonic(), 0.0
            while (began := world.clock.monotonic()) < start + 15:
                client = await served.connect()
                answers.append(await upload(client, padded(7, 300_000), 2 * MEGABYTE))
                client.transport.close()
                longest = max(longest, world.clock.monotonic() - began)
            for attacker in hostile:
                attacker.cancel()
            await asyncio.gather(*hostile, return_exceptions=True)
            return answers, longest

    return run_simulated(scenario)


def test_trickling_peers_do_not_make_the_server_close_large_requests() -> None:
    """From 10 s on, every large request was closed instead of those that fill the memory."""
    answers, longest = under_attack(60, SHORT_READ_BYTES - 1_000)
    assert set(map(tuple, answers)) == {(7,)}
    assert longest < 5 * REQUEST_WINDOW_S


def test_a_trickling_peer_passes_on_its_turn_to_grow() -> None:
    answers, longest = under_attack(8, 150_000)
    assert set(map(tuple, answers)) == {(7,)}
    assert longest < 10 * REQUEST_WINDOW_S


def test_slow_uploads_above_the_minimum_rate_all_complete() -> None:
    """After 10 s the uploads that were nearly done were closed, and began again."""

    async def scenario(world: World) -> tuple[list[list[int]], int, int]:
        async with serving(world, respond_now, Bounds(max_node_inflight_bytes=MEGABYTE)) as served:
            clients = [await served.connect() for _ in range(12)]
            uploads = [upload(client, padded(7, 400_000), 25_000) for client in clients]
            answers = await asyncio.gather(*uploads)
            return answers, memory(served).times_short, memory(served).evicted

    answers, times_short, evicted = run_simulated(scenario)
    assert answers == [[7]] * 12
    assert times_short
    assert not evicted


class FakeMember:
    def __init__(self, rate: float) -> None:
        self.memory_held = 0
        self.closed = False
        self._rate = rate
        self._memory: Memory | None = None

    def hold(self, shared: Memory, held: int) -> None:
        self._memory = shared
        shared.hold(self, held)

    def trim(self) -> None:
        """It has nothing to release."""

    def set_reading(self) -> None:
        """It has nothing to read."""

    def rate(self, _now: float) -> float:
        return math.inf if self.closed else self._rate

    def missing_bytes(self) -> int:
        return 0

    def evict(self, _reason: str) -> None:
        self.closed = True
        assert self._memory is not None
        self._memory.hold(self, 0)


def test_the_slowest_are_closed_first_and_none_that_holds_next_to_nothing() -> None:
    async def scenario(_world: World) -> tuple[list[bool], bool]:
        shared = Memory(1_000_000)
        held = {0.0: EVICTED_BYTES - 1, 7.0: 200_000, 9.0: 300_000, math.inf: 900_000}
        members = [FakeMember(rate) for rate in held]
        for member, size in zip(members, held.values(), strict=True):
            member.hold(shared, size)
        fast_enough = FakeMember(MIN_FRAME_BYTES_PER_S)
        fast_enough.hold(shared, 200_000)
        await asyncio.sleep(1)
        return [member.closed for member in (*members, fast_enough)], shared.short

    closed, short = run_simulated(scenario)
    assert closed == [False, True, True, False, False]
    assert short, "the others are not closed, although memory is still short"


def test_many_members_are_looked_at_and_closed_over_several_turns() -> None:
    count = 5_000

    async def scenario(_world: World) -> tuple[int, int, bool]:
        shared, looked_at = Memory(count * EVICTED_BYTES), []

        class Counted(FakeMember):
            def rate(self, now: float) -> float:
                looked_at.append(now)
                return super().rate(now)

        for _ in range(count):
            Counted(0.0).hold(shared, EVICTED_BYTES)
        most_looked_at = most_closed = 0
        for _ in range(1_000):
            before = len(looked_at), shared.evicted
            await asyncio.sleep(0)
            most_looked_at = max(most_looked_at, len(looked_at) - before[0])
            most_closed = max(most_closed, shared.evicted - before[1])
        return most_looked_at, most_closed, shared.short

    assert run_simulated(scenario) == (CHECKED_MEMBERS_A_TURN, EVICTIONS_A_TURN, False)


def test_a_consumer_that_reads_a_file_range_slowly_is_not_closed(tmp_path: Path) -> None:
    """It was closed first, although it held only some bytes."""
    (tmp_path / "segment").write_bytes(bytes(8 * MEGABYTE))
    file = SpiedFile(RealDisk().open(str(tmp_path / "segment")))

    async def scenario(world: World) -> int:
        handlers: dict[int, Handler] = {
            FETCH: fetch_handler(Range(file, 0, 4 * MEGABYTE), Range(file, 0, 4 * MEGABYTE)),
            HEARTBEAT: respond_now,
        }
        loop = asyncio.get_running_loop()
        bounds = Bounds(max_node_inflight_bytes=MEGABYTE)
        async with serving(world, handlers, bounds) as served:
            consumer = socket.socket()
            consumer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            consumer.setblocking(False)
            await loop.sock_connect(consumer, ("127.0.0.1", served.server.ports["PLAINTEXT"]))
            await loop.sock_sendall(consumer, fetch(1))
            halves = [await served.connect() for _ in range(16)]
            for client in halves:
                client.send(padded(1, 200_000)[:100_000])
            await until(lambda: memory(served).evicted)
            got = 0
            while got < 8 * MEGABYTE and (data := await loop.sock_recv(consumer, 65_536)):
                got += len(data)
            consumer.close()
            return got

    assert run(scenario) >= 8 * MEGABYTE


def test_what_a_peer_takes_and_sends_is_seen_while_the_server_waits() -> None:
    """The kernel reports a socket as writable only after the peer has read a third of its
    buffer."""

    async def scenario(_world: World) -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[asyncio.Transport] = loop.create_future()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.set_result(transport)  # type: ignore[arg-type]

        server = await loop.create_server(Accepted, "127.0.0.1", 0)
        peer = socket.create_connection(server.sockets[0].getsockname())
        transport = await made
        progress = Progress(transport, None)
        transport.pause_reading()
        transport.write(bytes(8 * MEGABYTE))
        await until(lambda: 0 < transport.get_write_buffer_size() < 8 * MEGABYTE)
        assert untaken_bytes(transport) > 0
        before = progress.taken(8 * MEGABYTE)
        assert before < 8 * MEGABYTE
        read = 0
        while progress.taken(8 * MEGABYTE) == before:
            read += len(peer.recv(65_536))
            await asyncio.sleep(0.001)
        assert read <= MEGABYTE

        start = loop.time()
        progress.begin_frame(start)
        peer.send(bytes(100))
        later = start + 2 * REQUEST_WINDOW_S
        await until(lambda: progress.request_rate(later, 0, 10_000, reading=False) == 50)
        assert progress.request_rate(later, 0, 100, reading=False) == math.inf, "all has arrived"
        later += 2 * REQUEST_WINDOW_S
        peer.send(bytes(MIN_FRAME_BYTES_PER_S))
        await until(lambda: progress.request_rate(later, 0, MEGABYTE, reading=False) == math.inf)
        transport.abort()
        peer.close()
        server.close()

    run(scenario)
