"""An event loop in a background thread: `start` waits for it, `stop` ends it, both raise its
errors."""

from __future__ import annotations

import asyncio

import pytest

from penstock.world import World
from penstock.world.real.thread import LoopThread, Running


def test_start_returns_the_value_and_work_runs_in_the_loop() -> None:
    ended = []

    async def main(_world: World, running: Running[str]) -> None:
        await running("value")
        ended.append(True)

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    thread = LoopThread(main)
    assert thread.start() == "value"
    assert thread.submit(work()).result() == 7
    assert not ended
    thread.stop()
    assert ended


def test_start_raises_an_error_before_the_start() -> None:
    async def main(_world: World, _running: Running[str]) -> None:
        raise ValueError("cannot start")

    with pytest.raises(ValueError, match="cannot start"):
        LoopThread(main).start()


def test_stop_raises_an_error_after_the_start() -> None:
    async def main(_world: World, running: Running[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(running("value"))
            await asyncio.sleep(0)
            waiting.cancel()
        raise ValueError("failed later")

    thread = LoopThread(main)
    assert thread.start() == "value"
    with pytest.raises(ValueError, match="failed later"):
        thread.stop()
