"""Reads of a scrape from disks that may not answer.

The page matters most while a disk hangs, so a scrape waits SCRAPE_READ_S at most and leaves out
what it has not read. A thread that waits for a disk cannot be interrupted. So a disk has at most
one read at a time: before it returns, no scrape starts another, and a disk that never answers holds
one thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from penstock.limits import SCRAPE_READ_S
from penstock.world import World

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Running(NamedTuple):
    task: asyncio.Task[Any]
    began: float


class Reads:
    """`close` it to cancel the tasks of reads that have not returned."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: dict[str, _Running] = {}

    def close(self) -> None:
        for running in list(self._running.values()):
            running.task.cancel()

    def is_stalled(self, name: str) -> bool:
        """Return True if a read has not returned in time. Call it after `results`."""
        return name in self._running

    async def results(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """Run calls in threads, each under the name of what it reads. Return the results of those
        that return in time, without those that raise OSError."""
        tasks = await asyncio.gather(*(self._start(name, call) for name, call in calls.items()))
        started = {name: task for name, task in zip(calls, tasks, strict=True) if task is not None}
        if started:
            await asyncio.wait(started.values(), timeout=SCRAPE_READ_S)
        results: dict[str, T] = {}
        for name, task in started.items():
            if not task.done():
                log.warning(
                    "%s has not answered a read for %g s; pages of metrics are without it until it "
                    "does. Check the disk",
                    name,
                    SCRAPE_READ_S,
                )
                task.add_done_callback(partial(self._answered_late, name))
            elif not isinstance(task.exception(), OSError):
                results[name] = task.result()
        return results

    async def _start(self, name: str, call: Callable[[], T]) -> asyncio.Task[T] | None:
        """Return the task of a call; None if the last call of the name does not return in time."""
        loop, clock = asyncio.get_running_loop(), self._world.clock
        if (last := self._running.get(name)) is not None:
            left_s = last.began + SCRAPE_READ_S - clock.monotonic()
            await asyncio.wait((last.task,), timeout=max(left_s, 0))
            if name in self._running:
                return None
        task: asyncio.Task[T] = loop.create_task(self._world.offload.read(call))
        self._running[name] = _Running(task, clock.monotonic())
        task.add_done_callback(partial(self._returned, name))
        return task

    def _returned(self, name: str, task: asyncio.Task[Any]) -> None:
        del self._running[name]
        if not task.cancelled():
            task.exception()  # the scrape that would raise it may have been cancelled

    @staticmethod
    def _answered_late(name: str, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            error = task.exception()
            log.warning("%s answers again%s", name, f": {error!r}" if error else "")
