"""A disk that does not answer holds one thread, and does not take away the page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.node import read_node_config
from penstock.limits import OFFLOAD_READ_THREADS
from penstock.metrics import reads as reads_module
from penstock.metrics.reads import Reads
from penstock.node.broker.formatting import format_directories
from penstock.server.metrics.listener import MetricsListener
from penstock.start import serving
from penstock.world import Volume, World
from penstock.world.real import run
from tests.metrics.scrape import get, parsed, value

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={0}/a,{0}/b
penstock.metrics.listener=http://127.0.0.1:0
"""


class Disk:
    """A disk whose reads hang until `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.reading = 0

    def read(self) -> str:
        self.reading += 1
        self.answers.wait(30)
        self.reading -= 1
        return "read"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setattr(reads_module, "SCRAPE_READ_S", 0.05)
    disk = Disk()
    yield disk
    disk.answers.set()


def test_what_does_not_answer_is_left_out_and_holds_one_thread(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        reads = Reads(world)
        for _scrape in range(OFFLOAD_READ_THREADS + 1):
            found = await reads.results({"a": disk.read, "b": lambda: "other"})
            assert found == {"b": "other"}
            assert reads.is_stalled("a")
            assert not reads.is_stalled("b")
        assert disk.reading == 1
        disk.answers.set()
        while reads.is_stalled("a"):
            await asyncio.sleep(0.001)
        assert await reads.results({"a": disk.read}) == {"a": "read"}

    run(scenario)
    # One line when it begins, and one when it ends.
    assert [record.message.split(" ")[0] for record in caplog.records] == ["a", "a"]
    assert "answers again" in caplog.text


def test_an_error_of_the_disk_is_left_out_and_a_defect_is_raised(disk: Disk) -> None:
    def broken() -> str:
        raise OSError(5, "Input/output error")

    def defect() -> str:
        raise ValueError("defect")

    async def scenario(world: World) -> None:
        reads = Reads(world)
        assert await reads.results({"a": broken, "b": lambda: "other"}) == {"b": "other"}
        with pytest.raises(ValueError, match="defect"):
            await reads.results({"a": defect})
        assert not reads.is_stalled("a")

    run(scenario)
    assert not disk.reading


def test_a_scrape_after_a_cancelled_one_waits_for_its_read(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads_module, "SCRAPE_READ_S", 20.0)

    async def scenario(world: World) -> None:
        reads = Reads(world)
        cancelled = asyncio.create_task(reads.results({"a": disk.read}))
        while not disk.reading:
            await asyncio.sleep(0.001)
        cancelled.cancel()
        following = asyncio.create_task(reads.results({"a": lambda: 7}))
        await asyncio.sleep(0.01)
        assert not following.done()
        disk.answers.set()
        assert await following == {"a": 7}

    run(scenario)


def test_the_page_comes_while_a_disk_hangs(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no volume of the directory, and reads of the other directory have their threads."""
    listeners: list[MetricsListener] = []
    start = MetricsListener.start

    async def started(self: MetricsListener) -> None:
        listeners.append(self)
        await start(self)

    monkeypatch.setattr(MetricsListener, "start", started)

    class HungDisk:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def volume(self, path: str) -> Volume:
            if path.endswith("/a"):
                disk.read()
            volume: Volume = self._real.volume(path)
            return volume

    async def scenario(world: World) -> None:
        config = read_node_config(PROPERTIES.format(tmp_path).encode(), "server.properties")
        format_directories(
            world.disk, world.rng, config, None, ignore_formatted=False, say=lambda *_: None
        )
        hung: Any = HungDisk(world.disk)
        async with serving(replace(world, disk=hung), config):
            (listener,) = listeners
            for _scrape in range(OFFLOAD_READ_THREADS + 1):
                status, body = await get(listener.port)
                assert status == 200
            page = parsed(body)
            stalled = "penstock_log_directory_stalled"
            assert value(page, stalled, directory=f"{tmp_path}/a") == 1
            assert value(page, stalled, directory=f"{tmp_path}/b") == 0
            volumes = {
                dict(labels)["directory"]
                for name, labels in page
                if name == "penstock_log_directory_volume_bytes"
            }
            assert volumes == {f"{tmp_path}/b"}
            assert value(page, "process_open_fds") > 0
            assert disk.reading == 1
            async with asyncio.timeout(10):
                await world.offload.read(lambda: None)
            disk.answers.set()

    run(scenario)
