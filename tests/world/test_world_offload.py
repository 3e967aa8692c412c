"""Offload: both worlds behave alike; and the lifetime of the real world's child process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import OFFLOAD_READ_THREADS
from penstock.world import Disk, World
from penstock.world.real import run
from tests.world.both_worlds import Play


class Unpicklable(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def copy_file(disk: Disk, source: str, *, target: str) -> int:
    data = disk.read(source)
    disk.replace(target, data)
    return len(data)


def child_id(_: Disk) -> int:
    return os.getpid()


def fail(_: Disk) -> None:
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "as expected")


def fail_unpicklably(_: Disk) -> None:
    raise Unpicklable(1, 2)


def die(_: Disk, signal_number: int) -> None:
    os.kill(os.getpid(), signal_number)


def print_and_wait(_: Disk, path: str) -> None:
    print("not a message")  # noqa: T201 - the point of the test
    Path(path).write_text(str(os.getpid()))
    threading.Event().wait()


def test_thread_returns_results_and_raises_errors(play: Play) -> None:
    async def scenario(world: World) -> None:
        assert await world.offload.thread(divmod, 7, 2) == (3, 1)
        assert await world.offload.thread(int, "ff", base=16) == 255
        with pytest.raises(ZeroDivisionError):
            await world.offload.thread(divmod, 7, 0)

    play(scenario)


def test_the_child_process_works_on_the_same_disk(play: Play, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.disk.make_dirs(str(tmp_path))
        world.disk.replace(f"{tmp_path}/a", b"content")
        assert await world.offload.process(copy_file, f"{tmp_path}/a", target=f"{tmp_path}/b") == 7
        assert world.disk.read(f"{tmp_path}/b") == b"content"
        with pytest.raises(FileNotFoundError):
            await world.offload.process(copy_file, f"{tmp_path}/absent", target=f"{tmp_path}/c")
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: as expected"):
            await world.offload.process(fail)

    play(scenario)


def test_calls_in_the_child_process_must_be_picklable(play: Play) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises((AttributeError, TypeError)):
            await world.offload.process(lambda disk: disk.exists("a"))

    play(scenario)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_call_that_fails_because_too_many_files_are_open_is_repeated(
    play: Play, number: int
) -> None:
    async def scenario(world: World) -> None:
        errors = [OSError(number, "too many open files"), OSError(number, "still")]

        def call() -> str:
            if errors:
                raise errors.pop()
            return "done"

        assert await world.offload.thread(call) == "done"
        errors = [OSError(errno.EIO, "broken")]
        with pytest.raises(OSError, match="broken"):
            await world.offload.thread(call)
        errors = [OSError(number, "too many open files")]
        with pytest.raises(OSError, match="too many"):
            await world.offload.read(call)

    play(scenario)


def test_reads_that_hang_do_not_delay_a_sync() -> None:
    async def scenario(world: World) -> None:
        disk_answers = threading.Event()
        reads = [
            asyncio.ensure_future(world.offload.read(disk_answers.wait))
            for _ in range(2 * OFFLOAD_READ_THREADS)
        ]
        try:
            assert await asyncio.wait_for(world.offload.thread(int, "1"), 30) == 1
        finally:
            disk_answers.set()
        assert all(await asyncio.gather(*reads))

    run(scenario)


def test_long_work_does_not_delay_the_work_of_a_request(started: Path) -> None:
    async def scenario(world: World) -> None:
        call = asyncio.ensure_future(world.offload.background(print_and_wait, str(started)))
        busy = int(await world.offload.thread(started.read_text))
        assert await asyncio.wait_for(world.offload.process(child_id), 30) != busy
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(scenario)


def test_long_work_keeps_its_state_between_calls(play: Play) -> None:
    async def scenario(world: World) -> None:
        first = await world.offload.background(child_id)
        assert await world.offload.background(child_id) == first

    play(scenario)


def test_one_child_runs_all_calls() -> None:
    async def scenario(world: World) -> list[int]:
        return await asyncio.gather(*(world.offload.process(child_id) for _ in range(3)))

    children = run(scenario)
    assert len(set(children)) == 1
    assert children[0] != os.getpid()


def test_an_unpicklable_error_is_raised_as_its_text() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(RuntimeError, match="1 and 2"):
            await world.offload.process(fail_unpicklably)

    run(scenario)


def test_a_child_that_dies_is_reported_and_replaced() -> None:
    async def scenario(world: World) -> None:
        first = await world.offload.process(child_id)
        with pytest.raises(ChildProcessError, match="killed by signal 9"):
            await world.offload.process(die, signal.SIGKILL)
        assert await world.offload.process(child_id) != first

    run(scenario)


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A named pipe through which a child reports its process id."""
    os.mkfifo(tmp_path / "started")
    return tmp_path / "started"


def wait_for_end(process: int) -> bool:
    """Return whether a process ends within ten seconds. A zombie still has a descriptor."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(wait([descriptor], 10))
    finally:
        os.close(descriptor)


def test_cancelling_a_call_kills_the_child(started: Path) -> None:
    async def scenario(world: World) -> None:
        call = asyncio.ensure_future(world.offload.process(print_and_wait, str(started)))
        child = int(await world.offload.thread(started.read_text))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert wait_for_end(child)
        assert await world.offload.process(child_id) != child

    run(scenario)


def test_the_child_does_not_outlive_its_node(started: Path) -> None:
    """Kill a node during a call, as kill -9 does. An orphaned child would write beside the
    restarted node."""
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from penstock.world.real import run
from test_world_offload import print_and_wait
run(lambda world: world.offload.process(print_and_wait, {str(started)!r}))
"""
    node = subprocess.Popen([sys.executable, "-c", program])
    try:
        child = int(started.read_text())
    finally:
        node.kill()
        node.wait()
    assert wait_for_end(child)
