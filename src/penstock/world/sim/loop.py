"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer. It never
waits, and has no sockets.

The order of events is deterministic: callbacks run first in, first out; timers by time, then by
age. Nothing here may depend on addresses, hash order or the real clock.

How a crashed process unwinds: its tasks are cancelled and run to their end, because Python cannot
stop a coroutine otherwise. By then its disk and network are dead, its timers never fire, and its
exceptions are ignored. A task that waits for a timer while it unwinds waits for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from penstock.world.sim.errors import NodeCrashed, SimulationFailed, SimulationStuck
from penstock.world.sim.process import (
    NO_PROCESS,
    SimFuture,
    SimProcess,
    SimTask,
    current_process,
    describe,
    process_of,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Monotonic time starts as on a machine that has been up for a day, so that code that uses 0 for
# "long ago" behaves as on a real machine.
FIRST_TIME = 86_400.0
MAX_STEPS_AT_ONE_TIME = 1_000_000
MAX_UNWINDING_STEPS = 1_000_000
SHOWN_TASKS = 20


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, label: str, max_steps: int) -> None:
        super().__init__()
        self._label = label
        self._max_steps = max_steps
        self._now = FIRST_TIME
        self._queue: deque[tuple[SimProcess | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, SimProcess | None, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._steps_then = 0
        self._tasks: dict[SimTask[Any], None] = {}
        self._unseen: list[weakref.ref[SimTask[Any]]] = []
        self._failures: list[SimulationFailed] = []
        self._unwinding = False
        self._running: SimProcess | None = None
        self.steps = 0

    def __del__(self) -> None:
        """Suppress BaseEventLoop's warning about an unclosed loop: this loop holds no resources."""

    # Scheduling

    def time(self) -> float:
        return self._now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append((process_of(context), handle))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self._number(), process_of(context), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        # There are no threads. Finalizers of async generators call this.
        return self.call_soon(callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by TimerHandle.cancel. Nothing to do: `_advance` drops cancelled timers."""

    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        future.number = self._number()
        future.process = current_process()
        return future

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        number = self._number()
        context = contextvars.copy_context() if context is None else context
        task = SimTask[Any](
            coro, self, f"task-{number}" if name is None else str(name), number, context
        )
        self._tasks[task] = None
        task.add_done_callback(self._forget, context=NO_PROCESS)
        if task.process is not None:
            task.process.tasks[task] = None
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        if isinstance(task, SimTask):
            del self._tasks[task]
            if task.process is not None:
                del task.process.tasks[task]
            if task._log_traceback:
                self._unseen.append(weakref.ref(task))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Running

    def _run_once(self) -> None:
        """Run one iteration, as BaseEventLoop.run_forever expects."""
        if not self._queue:
            self._advance()
        self._run_ready(len(self._queue))
        if self.steps > self._max_steps:
            raise self._stuck(
                f"stopped after {self.steps} steps: raise max_steps if the run needs more"
            )
        if self.steps - self._steps_then > MAX_STEPS_AT_ONE_TIME:
            raise self._stuck(f"in a livelock: {MAX_STEPS_AT_ONE_TIME} steps at one time")

    def _run_ready(self, count: int) -> None:
        popleft = self._queue.popleft
        for _ in range(count):
            process, handle = popleft()
            if process is not None and process.paused:
                process.backlog.append(handle)
            elif not handle._cancelled and not (
                process is not None and process.dead and isinstance(handle, asyncio.TimerHandle)
            ):
                self.steps += 1
                self._running = process
                handle._run()
            if self._failures and not self._unwinding:
                raise self._failures[0]

    def _advance(self) -> None:
        """Advance the clock to the next timer, and queue all timers that are due then."""
        while self._timers and (not self._queue or self._timers[0][0] <= self._now):
            when, _, process, timer = heapq.heappop(self._timers)
            if timer._cancelled or (process is not None and process.dead):
                continue
            if when > self._now:
                self._now, self._steps_then = when, self.steps
            self._queue.append((process, timer))
        if not self._queue:
            raise self._stuck("in a deadlock: nothing is ready and no timer is set")

    def resume(self, process: SimProcess) -> None:
        """Let a paused process run again, and queue the callbacks that it missed."""
        process.paused = False
        self._queue.extend((process, handle) for handle in process.backlog)
        process.backlog.clear()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, then cancel all other tasks. Unhandled exceptions fail the
        run."""
        try:
            result = self.run_until_complete(main)
            self._report_unseen()
            return result
        finally:
            self._unwind()
            self.close()

    def _unwind(self) -> None:
        self._unwinding = True
        asyncio._set_running_loop(self)
        try:
            for task in list(self._tasks):
                task.cancel()
            limit = self.steps + MAX_UNWINDING_STEPS
            while self._queue and self.steps < limit:
                self._run_ready(len(self._queue))
        finally:
            asyncio._set_running_loop(None)
        for task in self._tasks:
            # A task that waits for a timer in its `finally` stays pending. Without this, asyncio
            # would report each of them.
            task._log_destroy_pending = False

    # Failing

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run for an unhandled exception, unless its process has crashed and is being
        unwound, or was stopped by `stop_after`, which leaves it in an arbitrary state."""
        source = context.get("task") or context.get("future")
        process = source.process if isinstance(source, SimTask | SimFuture) else self._running
        cause = context.get("exception")
        if process is not None and isinstance(cause, NodeCrashed):
            process.stopped = True
        if (
            self._unwinding
            or isinstance(cause, NodeCrashed)
            or (process is not None and (process.dead or process.stopped))
        ):
            return
        name = "no node" if process is None else process.name
        failure = SimulationFailed(
            f"{self._label}, at {self._now:.6f} s, on {name}: {context.get('message')}: {cause!r}"
        )
        failure.__cause__ = cause
        self._failures.append(failure)

    def _report_unseen(self) -> None:
        """Report exceptions that were never retrieved. asyncio does so when a task is garbage
        collected, which may not have happened yet."""
        for reference in self._unseen:
            task = reference()
            if task is not None and task._log_traceback:
                self.call_exception_handler(
                    {
                        "message": "a task's exception was never retrieved",
                        "exception": task.exception(),
                        "task": task,
                    }
                )
        if self._failures:
            raise self._failures[0]

    def _stuck(self, reason: str) -> SimulationStuck:
        waiting = [describe(task) for task in self._tasks][:SHOWN_TASKS]
        return SimulationStuck(
            "\n".join(
                [
                    f"{self._label}, at {self._now:.6f} s: {reason}; {len(self._tasks)} tasks wait",
                    *waiting,
                ]
            )
        )

    # Refused

    def run_in_executor(self, *_: object) -> NoReturn:
        raise RuntimeError("the simulated loop has no threads: use world.offload")

    async def create_connection(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("the simulated loop has no sockets: connect through world.network")

    async def create_server(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("the simulated loop has no sockets: listen through world.network")
