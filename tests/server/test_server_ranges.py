"""Ranges of real files: the kernel sends them, threads read cold ones, and they arrive whole and in
order."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from penstock.limits import (
    PAGE_CACHE_CHECK_BYTES,
    PAGE_CACHE_TRUST_S,
    SAME_HOST_SEND_BUFFER_BYTES,
    SEND_PIECE_BYTES,
    SMALL_RANGE_BYTES,
    UNWATCHED_SOCKET_S,
)
from penstock.protocol.codec import encode
from penstock.protocol.messages.fetch import FetchResponse
from penstock.server import sendfile
from penstock.server.state import Bounds
from penstock.world import Offload, World
from penstock.world.real import RealDisk, RealFile, page_cache, run
from penstock.world.real import disk as real_disk
from tests.server.serving import FETCH, HEARTBEAT, Client, heartbeat, respond_now, serving
from tests.server.test_server_backpressure import MEGABYTE, connect_deaf, fetch, fetch_handler
from tests.server.test_server_order import until

P = ParamSpec("P")
T = TypeVar("T")
SIZE = 8 * MEGABYTE
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class SpiedFile:
    """Counts the bytes that are read into Python's memory."""

    file: RealFile
    reads: list[int] = field(default_factory=list)
    is_cold: bool = False

    def pread(self, length: int, position: int, /) -> bytes:
        self.reads.append(length)
        return self.file.pread(length, position)

    def pread_at_once(self, length: int, position: int, /) -> bytearray | None:
        return None if self.is_cold else self.file.pread_at_once(length, position)

    def in_memory(self, length: int, position: int, /) -> bool:
        return not self.is_cold and self.file.in_memory(length, position)

    def bring_in(self, length: int, position: int, /) -> None:
        self.reads.append(length)
        self.file.bring_in(length, position)

    def fileno(self) -> int:
        return self.file.fileno()


@dataclass(frozen=True)
class Range:
    file: SpiedFile
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


class SpiedThreads:
    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self.calls = 0

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        return await self._offload.thread(call, *args, **kwargs)

    async def read(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        return await self._offload.read(call, *args, **kwargs)

    async def process(self, *_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("nothing of this is for a child process")

    background = process


@pytest.fixture
def content() -> bytes:
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> SpiedFile:
    path = tmp_path / "segment"
    path.write_bytes(content)
    return SpiedFile(RealDisk().open(str(path)))


def body_of(parts: list[bytes]) -> bytes:
    """Return a Fetch v4 response with these records, as the client collects it."""
    partitions = tuple(
        FetchResponse.Response.Partition(partition_index=index, records=part)
        for index, part in enumerate(parts)
    )
    response = FetchResponse(responses=(FetchResponse.Response(topic="t", partitions=partitions),))
    return b"".join(part for part in encode(response, 4) if isinstance(part, bytes))


def ask(
    file: SpiedFile, pieces: list[tuple[int, int]], *, deaf: bool = False
) -> tuple[list[tuple[int, bytes]], int]:
    """Send a fetch of these (position, length), a heartbeat and the fetch again. Return the
    responses, and the number of calls in threads."""

    async def scenario(world: World) -> tuple[list[tuple[int, bytes]], int]:
        threads = SpiedThreads(world.offload)
        spied = replace(world, offload=threads)
        handler = fetch_handler(*(Range(file, *piece) for piece in pieces))
        async with serving(spied, {FETCH: handler, HEARTBEAT: respond_now}) as served:
            client = await (connect_deaf(served) if deaf else served.connect())
            client.send(fetch(1), heartbeat(2), fetch(3))
            await until(lambda: served.server.counters.requests)
            if deaf:
                await asyncio.sleep(0.05)
                client.transport.resume_reading()
            await client.wait_responses(3)
            return client.responses, threads.calls

    responses: tuple[list[tuple[int, bytes]], int] = run(scenario)
    return responses


PIECES = [
    (17, 5 * MEGABYTE + 3),
    (0, 100),
    (SIZE - 1, 1),
    (5, 0),
    (MEGABYTE, SMALL_RANGE_BYTES + 1),
    (3, SMALL_RANGE_BYTES),
]


@pytest.mark.parametrize("deaf", [False, True])
def test_large_ranges_never_become_python_objects(
    file: SpiedFile, content: bytes, deaf: bool
) -> None:
    responses, thread_calls = ask(file, PIECES, deaf=deaf)
    expected = body_of([content[position : position + length] for position, length in PIECES])
    assert [correlation for correlation, _ in responses] == [1, 2, 3]
    assert responses[0][1] == responses[2][1] == expected
    assert file.reads == []
    assert thread_calls == 0


@pytest.mark.parametrize("deaf", [False, True])
def test_threads_read_ranges_that_are_not_in_memory(
    file: SpiedFile, content: bytes, deaf: bool
) -> None:
    file.is_cold = True
    responses, thread_calls = ask(file, PIECES, deaf=deaf)
    expected = body_of([content[position : position + length] for position, length in PIECES])
    assert [correlation for correlation, _ in responses] == [1, 2, 3]
    assert responses[0][1] == responses[2][1] == expected
    assert thread_calls == len(file.reads) >= 2 * (6 + 4)
    assert max(file.reads) == SEND_PIECE_BYTES


@pytest.mark.parametrize("kernel_tells", [True, False])
def test_cold_and_warm_files_are_told_apart(
    file: SpiedFile, kernel_tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel_tells:
        monkeypatch.setattr(page_cache, "_call", None)
    make_cold(file)
    cold = not file.in_memory(SIZE, 0)
    make_cold(file)  # a kernel that cannot tell reads ahead when it is asked
    cold = cold and file.pread_at_once(SIZE, 0) is None
    file.bring_in(SIZE, 0)
    assert file.in_memory(SIZE, 0)
    assert bytes(file.pread_at_once(100, SIZE - 100) or b"") == file.pread(100, SIZE - 100)
    assert file.pread_at_once(100, SIZE - 99) is None
    assert cold or in_memory_file_system(file.file.path)


def test_checking_the_page_cache_reads_nothing(file: SpiedFile) -> None:
    make_cold(file)
    before = cached_pages(file)
    cold = [page for page in range(SIZE // PAGE) if page not in before]
    if not cold:
        pytest.skip("a kernel that cannot tell, or a file system that never forgets")
    assert not file.in_memory(SIZE, 0)
    assert file.pread_at_once(100, cold[0] * PAGE) is None
    assert cached_pages(file) == before


def test_a_sequential_reader_is_checked_once_per_8_mb_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(2 * PAGE_CACHE_CHECK_BYTES))
    file = RealDisk().open(str(path))
    file.bring_in(2 * PAGE_CACHE_CHECK_BYTES, 0)
    checks: list[tuple[int, int]] = []
    is_cached, now = page_cache.is_cached, 1_000.0

    def counted(descriptor: int, length: int, position: int) -> bool | None:
        checks.append((length, position))
        return is_cached(descriptor, length, position)

    monkeypatch.setattr(page_cache, "is_cached", counted)
    monkeypatch.setattr(real_disk, "monotonic", lambda: now)
    if not file.in_memory(MEGABYTE, 0) or is_cached(file.fileno(), 1, 0) is None:
        pytest.skip("a kernel that cannot tell, or a file system without such reads")
    checks.clear()
    for position in range(MEGABYTE, 2 * PAGE_CACHE_CHECK_BYTES, MEGABYTE):
        assert file.in_memory(MEGABYTE, position)
        assert file.pread_at_once(100, position) is not None
    assert checks == [(PAGE_CACHE_CHECK_BYTES, PAGE_CACHE_CHECK_BYTES)]
    now += PAGE_CACHE_TRUST_S + 0.1
    assert file.in_memory(MEGABYTE, PAGE_CACHE_CHECK_BYTES)
    assert len(checks) == 2, "the kernel may have dropped pages since"


def test_recent_writes_are_known_to_be_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, now = RealDisk().open(str(tmp_path / "segment"), create=True), 1_000.0
    monkeypatch.setattr(real_disk, "monotonic", lambda: now)
    for position in range(0, 1_000, 100):
        file.pwrite(bytes(100), position)
    assert file._is_known(1_000, 0)
    assert not file._is_known(1_001, 0)
    file.truncate(500)
    assert file._is_known(500, 0)
    assert not file._is_known(501, 0)
    now += PAGE_CACHE_TRUST_S + 0.1
    assert not file._is_known(500, 0)


def cached_pages(file: SpiedFile) -> list[int]:
    return [
        page
        for page in range(SIZE // PAGE)
        if page_cache.is_cached(file.fileno(), 1, page * PAGE) is not False
    ]


def make_cold(file: SpiedFile) -> None:
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_memory_file_system(path: str) -> bool:
    """Return True for tmpfs, which never drops a page."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    mount = max(
        (mount for mount in mounts if path.startswith(mount[0].rstrip("/") + "/")),
        key=lambda mount: len(mount[0]),
    )
    return mount[1] in ("tmpfs", "ramfs")


def test_a_read_error_ends_the_connection(
    file: SpiedFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_length: int, _position: int, /) -> None:
        raise OSError(5, "Input/output error")

    file.is_cold = True
    monkeypatch.setattr(file, "bring_in", broken)
    responses = ask(file, [(0, MEGABYTE)])[0]
    assert responses == []
    assert "cannot read a response from its file: [Errno 5]" in caplog.text


def test_a_truncated_file_ends_the_connection(
    file: SpiedFile, caplog: pytest.LogCaptureFixture
) -> None:
    file.file.truncate(3 * MEGABYTE)
    assert ask(file, [(0, 4 * MEGABYTE)])[0] == []
    assert "it was truncated while a response was being sent" in caplog.text


def test_a_peer_that_disconnects_within_a_range_leaks_no_socket(file: SpiedFile) -> None:
    async def scenario(world: World) -> tuple[int, int]:
        before = sockets()
        async with serving(
            world, {FETCH: fetch_handler(Range(file, 0, SIZE)), HEARTBEAT: respond_now}
        ) as served:
            clients = [await connect_deaf(served) for _ in range(20)]
            for client in clients:
                client.send(fetch(1), fetch(2))
            await until(lambda: served.server.counters.requests == 20)
            for number, client in enumerate(clients):
                (client.transport.abort if number % 2 else client.transport.close)()
            await until(lambda: served.server.counters.connections == 0)
        await until(lambda: sockets() <= before)
        return before, sockets()

    before, after = run(scenario)
    assert after <= before


def sockets() -> int:
    gc.collect()
    links = (Path(entry.path) for entry in os.scandir("/proc/self/fd"))
    return sum(str(link.readlink()).startswith("socket:") for link in links if link.is_symlink())


def test_concurrent_readers_get_their_own_bytes(file: SpiedFile, content: bytes) -> None:
    rng = random.Random(7)
    pieces = [
        (position, rng.randrange(SIZE - position))
        for position in (rng.randrange(SIZE) for _ in range(4))
    ]
    expected = body_of([content[position : position + length] for position, length in pieces])

    async def scenario(world: World) -> list[Client]:
        handler = fetch_handler(*(Range(file, *piece) for piece in pieces))
        async with serving(world, {FETCH: handler, HEARTBEAT: respond_now}) as served:
            clients = [await served.connect() for _ in range(5)]
            for number, client in enumerate(clients):
                client.send(*(heartbeat(0) for _ in range(number)), fetch(1), heartbeat(2))
            for number, client in enumerate(clients):
                await client.wait_responses(number + 2)
            return clients

    for number, client in enumerate(run(scenario)):
        assert client.order == [0] * number + [1, 2]
        assert client.responses[number][1] == expected


@pytest.mark.parametrize(
    ("setting", "expected"), [(None, SAME_HOST_SEND_BUFFER_BYTES), (50_000, 50_000)]
)
def test_clients_on_the_same_host_get_a_small_send_buffer(
    setting: int | None, expected: int
) -> None:
    async def scenario(world: World) -> int:
        async with serving(world, respond_now, Bounds(send_buffer_bytes=setting)) as served:
            await served.connect()
            await until(lambda: served.server.counters.connections)
            (connection,) = served.server._state.connections
            own_socket = connection._transport.get_extra_info("socket")
            return int(own_socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))

    # Linux doubles the value for its own use.
    assert run(scenario) in (expected, 2 * expected)


@pytest.mark.parametrize("reason", ["too many open files", "too many watched sockets"])
def test_ranges_arrive_without_a_second_descriptor(
    file: SpiedFile, content: bytes, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def no_descriptor(_fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scenario(world: World) -> tuple[list[tuple[int, bytes]], set[int]]:
        handlers = {FETCH: fetch_handler(Range(file, 0, SIZE)), HEARTBEAT: respond_now}
        async with serving(world, handlers) as served:
            client = await connect_deaf(served)
            client.send(fetch(1), heartbeat(2))
            await asyncio.sleep(0.1)
            client.transport.resume_reading()
            await client.wait_responses(2)
            return client.responses, served.server._state.watched_sockets

    if reason == "too many open files":
        monkeypatch.setattr(os, "dup", no_descriptor)
    else:
        monkeypatch.setattr(sendfile, "MAX_WATCHED_SOCKETS", 0)
    responses, watched = run(scenario)
    assert [correlation for correlation, _body in responses] == [1, 2]
    assert content in responses[0][1]
    assert watched == set()


def test_a_peer_that_takes_nothing_is_not_active_and_wakes_the_loop_ever_less_often(
    file: SpiedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> tuple[float, float]:
        handlers = {FETCH: fetch_handler(Range(file, 0, SIZE))}
        async with serving(world, handlers) as served:
            client = await connect_deaf(served)
            client.send(fetch(1))
            await until(lambda: served.server.counters.connections)
            (connection,) = served.server._state.connections
            sending = connection._writer._socket
            # Until then the send buffer fills, or a look finds nothing to send.
            await until(lambda: sending._timer_s >= 4 * UNWATCHED_SOCKET_S)
            active = connection.last_active
            await until(lambda: sending._timer_s >= 8 * UNWATCHED_SOCKET_S)
            return active, connection.last_active

    monkeypatch.setattr(sendfile, "MAX_WATCHED_SOCKETS", 0)
    before, after = run(scenario)
    assert before == after
