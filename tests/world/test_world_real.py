"""Properties of the real world only: system calls without overhead, and safe file descriptors."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import threading
import time
from pathlib import Path

import pytest
import uvloop

from penstock.ids import RESERVED_UUIDS, Buffer, uuid_text
from penstock.world import Clock, Rng, World
from penstock.world.real import RealClock, RealDisk, RealRng, real_world, run
from penstock.world.sim import SimRng, stream


def test_the_world_runs_on_uvloop() -> None:
    async def scenario(world: World) -> type[asyncio.AbstractEventLoop]:
        assert abs(world.clock.monotonic() - asyncio.get_running_loop().time()) < 1.0
        return type(asyncio.get_running_loop())

    assert run(scenario) is uvloop.Loop


def test_the_clock_is_the_systems_clock() -> None:
    clock: Clock = RealClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    assert clock.monotonic() <= clock.monotonic()


@pytest.mark.parametrize("rng", [RealRng(), SimRng(stream(1, "test"))])
def test_uuids_are_valid_for_kafka(rng: Rng) -> None:
    uuids = [rng.uuid() for _ in range(2000)]
    assert len(set(uuids)) == 2000
    assert not any(uuid_text(uuid).startswith("-") for uuid in uuids)
    assert all(uuid.int >= RESERVED_UUIDS for uuid in uuids)
    assert {rng.randrange(3) for _ in range(100)} == {0, 1, 2}
    assert all(0 <= rng.random() < 1 for _ in range(100))


def test_pread_and_sync_add_no_python_frame(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    assert isinstance(file.pread, functools.partial)
    assert file.pread.func is os.pread
    assert isinstance(file.sync, functools.partial)
    assert file.sync.func is os.fdatasync
    assert not os.get_inheritable(file.fileno())


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite

    def write_three(descriptor: int, data: Buffer, position: int) -> int:
        return whole(descriptor, memoryview(data)[:3], position)

    monkeypatch.setattr(os, "pwrite", write_three)
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    assert file.pwrite(b"ten bytes!", 2) == 10
    assert file.pread(100, 0) == b"\0\0ten bytes!"


def test_a_write_without_progress_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    with pytest.raises(OSError, match="only 0 of 3 bytes"):
        file.pwrite(b"abc", 0)


def test_a_descriptor_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    """Otherwise the number could denote another file while a thread still uses it."""
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.pwrite(b"content", 0)
    held = file.fileno()
    number = int(held)
    file.close()
    assert os.pread(held, 7, 0) == b"content"
    del held
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_garbage_collected_file_is_closed(tmp_path: Path) -> None:
    number = int(RealDisk().open(f"{tmp_path}/a", create=True).fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_file_closed_before_a_pending_sync_is_still_synced(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        file = world.disk.open(f"{tmp_path}/a", create=True)
        gate = threading.Event()
        waiting = [asyncio.ensure_future(world.offload.thread(gate.wait)) for _ in range(8)]
        sync = asyncio.ensure_future(world.offload.thread(file.sync))
        await asyncio.sleep(0)
        file.close()
        gate.set()
        await asyncio.gather(*waiting, sync)

    run(scenario)


def test_connections_have_tcp_nodelay() -> None:
    async def scenario(world: World) -> None:
        made: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.put_nowait(transport)

        listener = await world.network.listen(Server, "127.0.0.1", 0)
        client, _ = await world.network.connect(asyncio.Protocol, "127.0.0.1", listener.port)
        for transport in (client, await made.get()):
            assert (
                transport.get_extra_info("socket").getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_NODELAY
                )
                != 0
            )

    run(scenario)


def test_an_empty_host_listens_on_one_port_of_every_address() -> None:
    async def scenario(world: World) -> None:
        listener = await world.network.listen(asyncio.Protocol, "", 0)
        await world.network.connect(asyncio.Protocol, "127.0.0.1", listener.port)
        if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):
            await world.network.connect(asyncio.Protocol, "::1", listener.port)
        listener.close()

    run(scenario)


def test_a_world_can_be_built_without_a_running_loop() -> None:
    world = real_world()
    assert isinstance(world.disk, RealDisk)
    assert world.rng.randrange(1) == 0
