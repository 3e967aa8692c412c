"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer. It never
waits, and has no sockets.

The order of events is deterministic: callbacks run first in, first out; timers by time, then by
age. Nothing here may depend on addresses, hash order or the real clock.

`now` is the simulation's virtual time. Computing takes none of it, unless the process has a
`Speed`: then each callback makes the process busy for a while, in which other processes go on. A
process whose machine has a clock of another rate sees that clock in `time`.

How a crashed process unwinds: its tasks are cancelled and run to their end, because Python cannot
stop a coroutine otherwise. By then its disk and network are dead, its timers never fire, and its
exceptions are ignored. A task that waits for a timer while it unwinds waits forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from penstock.world.sim.clock import Speed
from penstock.world.sim.errors import NodeCrashed, SimulationFailed, SimulationStuck
from penstock.world.sim.process import (
    NO_PROCESS,
    SimFuture,
    SimHandle,
    SimProcess,
    SimTask,
    SimTimer,
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
# Garbage is collected when this many objects were made and not freed.
GARBAGE_OBJECTS = 200_000
# The number of tasks that may be done and not yet forgotten, beside as many as there are others.
SWEPT_TASKS = 200
# A process waits for the time it has computed in steps of at least this much.
MIN_BUSY_S = 0.000_2


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely, and do not look at what exists already. A run makes many objects and
    few reference cycles."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class SimLoop(asyncio.BaseEventLoop):
    _stopping: bool  # set by BaseEventLoop.stop; typeshed does not declare it

    def __init__(self, label: str, max_steps: int) -> None:
        super().__init__()
        self.now = FIRST_TIME
        self.steps = 0
        self._label = label
        self._max_steps = max_steps
        self._queue: deque[SimHandle | SimTimer] = deque()
        self._timers: list[tuple[float, int, SimHandle | SimTimer]] = []
        self.next_number: Callable[[], int] = itertools.count(1).__next__
        self._steps_limit = MAX_STEPS_AT_ONE_TIME  # until the clock advances
        self._tasks: dict[int, SimTask[Any]] = {}  # also some that are done
        self._sweep_above = SWEPT_TASKS
        self._unseen: list[weakref.ref[SimTask[Any]]] = []
        self._failures: list[SimulationFailed] = []
        self._unwinding = False
        self._running: SimProcess | None = None

    def __del__(self) -> None:
        """Suppress BaseEventLoop's warning about an unclosed loop: this loop holds no resources."""

    # Scheduling

    def time(self) -> float:
        """Return the monotonic time of the running process's machine."""
        process = self._running
        if process is None or process.clock is None:
            return self.now
        return process.clock.monotonic()

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if context is None:
            context, process = contextvars.copy_context(), self._running
        else:
            process = process_of(context)
        handle = SimHandle(callback, args, context, process)
        self._queue.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        running = self._running
        if context is None:
            context, process = contextvars.copy_context(), running
        else:
            process = process_of(context)
        timer = SimTimer(when, callback, args, context, process)
        if running is not None and running.clock is not None:
            when = running.clock.virtual(when)
        heapq.heappush(self._timers, (when, self.next_number(), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        # There are no threads. Finalizers of async generators call this.
        return self.call_soon(callback, *args, context=context)

    def deliver_at(
        self, when: float, callback: Callable[[], object], process: SimProcess | None = None
    ) -> asyncio.Handle:
        """Run a callback in a process, dead or alive, at a virtual time: a packet arrives. Without
        a process it belongs to the simulation itself."""
        context = NO_PROCESS if process is None else process.context
        handle = SimHandle(callback, (), context, process)
        heapq.heappush(self._timers, (when, self.next_number(), handle))
        return handle

    def call_next(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Run a callback of no process right after the current callback, before any other. Faults
        use this: a process cannot crash in the middle of a callback."""
        self._queue.appendleft(SimHandle(callback, args, NO_PROCESS, None))

    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        future.process = self._running
        return future

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        number = self.next_number()
        context = contextvars.copy_context() if context is None else context
        task = SimTask[Any](
            coro, self, f"task-{number}" if name is None else str(name), number, context
        )
        self._tasks[number] = task
        if len(self._tasks) > self._sweep_above:
            self._sweep()
        return task

    def _sweep(self) -> None:
        """Forget tasks that are done. A callback of each task would cost more."""
        for number, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[number]
                if task._log_traceback:
                    self._unseen.append(weakref.ref(task))
        self._sweep_above = 2 * len(self._tasks) + SWEPT_TASKS

    def tasks_of(self, process: SimProcess) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks.values() if task.process is process]

    # Running

    def _run_once(self) -> None:
        """Run until `stop`, as BaseEventLoop.run_forever expects."""
        queue = self._queue
        while not self._stopping:
            if not queue:
                self._advance()
            self._run_next(queue.popleft())

    def _run_next(self, handle: SimHandle | SimTimer) -> None:
        process, callback = handle.process, handle._callback
        if process is not None:
            if process.paused or process.busy:
                process.backlog.append(handle)
                return
            if process.dead and isinstance(handle, SimTimer):
                return
        if callback is None:  # cancelled
            return
        self.steps += 1
        self._running = process
        try:
            handle._context.run(callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - fails the run
            self.call_exception_handler({"message": f"in {callback!r}", "exception": error})
        self._running = None
        if process is not None and process.speed is not None:
            self._charge(process, process.speed)
        if self._failures and not self._unwinding:
            raise self._failures[0]
        if self.steps > self._steps_limit and not self._unwinding:
            raise self._stuck(f"in a livelock: {MAX_STEPS_AT_ONE_TIME} steps at one time")

    def _advance(self) -> None:
        """Advance the clock to the next timer, and queue all timers that are due then."""
        timers, queue = self._timers, self._queue
        if self.steps > self._max_steps:
            raise self._stuck(
                f"stopped after {self.steps} steps: raise max_steps if the run needs more"
            )
        while timers and (not queue or timers[0][0] <= self.now):
            when, _, handle = heapq.heappop(timers)
            if handle._callback is None:  # cancelled
                continue
            process = handle.process
            if process is not None and process.dead and isinstance(handle, SimTimer):
                continue
            if when > self.now:
                self.now, self._steps_limit = when, self.steps + MAX_STEPS_AT_ONE_TIME
            queue.append(handle)
        if not queue:
            raise self._stuck("in a deadlock: nothing is ready and no timer is set")

    def _charge(self, process: SimProcess, speed: Speed) -> None:
        """Let a process wait for the time that its callback took."""
        process.ahead_s += speed.draw()
        if process.ahead_s >= MIN_BUSY_S and not process.dead:
            process.busy = True
            self.deliver_at(self.now + process.ahead_s, lambda: self._end_busy(process))

    def _end_busy(self, process: SimProcess) -> None:
        process.busy = False
        process.ahead_s = 0.0
        if not process.paused:
            self._queue.extendleft(reversed(process.backlog))
            process.backlog.clear()

    def resume(self, process: SimProcess) -> None:
        """Let a paused process run again, and queue the callbacks that it missed."""
        process.paused = False
        if process.dead:
            process.busy = False
        if not process.busy:
            self._queue.extend(process.backlog)
            process.backlog.clear()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, then cancel all other tasks. Unhandled exceptions fail the
        run."""
        with _rare_collections():
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
            for task in list(self._tasks.values()):
                if task.process is not None:
                    task.process.speed = None
                    task.process.busy = False
                    self.resume(task.process)
                task.cancel()
            limit = self.steps + MAX_UNWINDING_STEPS
            while self._queue and self.steps < limit:
                self._run_next(self._queue.popleft())
        finally:
            asyncio._set_running_loop(None)
        for task in self._tasks.values():
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
            f"{self._label}, at {self.now:.6f} s, on {name}: {context.get('message')}: {cause!r}"
        )
        failure.__cause__ = cause
        self._failures.append(failure)

    def _report_unseen(self) -> None:
        """Report exceptions that were never retrieved. asyncio does so when a task is garbage
        collected, which may not have happened yet."""
        self._sweep()
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
        self._sweep()
        waiting = [describe(task) for task in self._tasks.values()][:SHOWN_TASKS]
        return SimulationStuck(
            "\n".join(
                [
                    f"{self._label}, at {self.now:.6f} s: {reason}; {len(self._tasks)} tasks wait",
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
