"""An event loop in a background thread, for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from penstock.world import World
from penstock.world.real import run

R = TypeVar("R")
T = TypeVar("T")

# Reports that the main coroutine has started, and returns when it is to end.
Running = Callable[[T], Coroutine[Any, Any, None]]


class LoopThread(Generic[T]):
    """Runs `main(world, running)` in an event loop of its own. `main` awaits `running(value)` once
    it has started; `start` returns that value."""

    def __init__(self, main: Callable[[World, Running[T]], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)
        # Set when `main` has started, and when it has failed.
        self._started = threading.Event()
        self._has_value = False
        self._error: BaseException | None = None

    def start(self) -> T:
        """Return when `main` has started. Raise its error if it fails before that."""
        self._thread.start()
        self._started.wait()
        if not self._has_value:
            self._thread.join()
            assert self._error is not None, "main returned before it started"
            raise self._error
        return self._value

    def stop(self) -> None:
        """End `main` and the thread. Raise the error of `main` if it failed."""
        with contextlib.suppress(RuntimeError):  # the loop is closed if `main` has failed
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    @property
    def is_running(self) -> bool:
        """Return whether `main` has started and has not ended. It is False in a forked child."""
        return self._has_value and self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        """Run a coroutine in the event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self) -> None:
        try:
            run(self._run_main)
        except BaseException as error:  # noqa: BLE001 - `start` or `stop` raises it
            self._error = error
        finally:
            self._started.set()

    async def _run_main(self, world: World) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._main(world, self._running)

    async def _running(self, value: T) -> None:
        self._value, self._has_value = value, True
        self._started.set()
        await self._stop.wait()
