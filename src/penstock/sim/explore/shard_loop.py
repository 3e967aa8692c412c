"""An event loop for the shard explorer: callbacks run when the walk says so, and time passes when
the walk says so. It has only what futures, tasks and timers need."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

# A timer runs so long after its time: the shard rounds the time down to milliseconds.
_RESOLUTION_S = 1e-6


class TurnLoop:
    def __init__(self) -> None:
        self._self: Any = self
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        # Exceptions that no one handled.
        self.errors: list[BaseException] = []

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self._self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None: ...

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(error if error is not None else RuntimeError(context["message"]))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make this the running loop, and at the end run all callbacks that are ready."""
        asyncio._set_running_loop(self._self)
        try:
            yield
            self._run_ready()
        finally:
            asyncio._set_running_loop(None)
        if self.errors:
            raise self.errors[0]

    def _run_ready(self) -> None:
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def pass_time(self, seconds: float) -> None:
        """Let time pass; timers run at their time."""
        until = self._now + seconds
        self._run_ready()
        while self._timers and self._timers[0][0] <= until:
            when, _count, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._now = max(self._now, when + _RESOLUTION_S)
                timer._run()
                self._run_ready()
        self._now = max(self._now, until)
