"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer. It waits
for nothing and knows no sockets.

Owns the order in which things happen: first come, first served, and timers by time and then by age.
Nothing here may depend on addresses, hash order or the machine's clock.

How a crashed process unwinds: its tasks are cancelled and run to their end, as Python cannot stop a
coroutine otherwise; but its disk and network are dead by then, its timers never fire, and what it
raises is ignored. A task that waits for a timer while unwinding stays so.
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
from penstock.world.sim.owner import NOBODY, Owner, owner_of
from penstock.world.sim.tasks import SimFuture, SimTask, describe

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A machine that has been up for a day: code that takes 0 for "long ago" gets what it would get
# outside.
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
        self._queue: deque[tuple[Owner | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, Owner | None, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._steps_then = 0
        self._tasks: dict[SimTask[Any], None] = {}
        self._unseen: list[weakref.ref[SimTask[Any]]] = []
        self._failures: list[SimulationFailed] = []
        self._unwinding = False
        self._running: Owner | None = None
        self.steps = 0

    def __del__(self) -> None:
        """BaseEventLoop would warn of a loop that was never closed; this one holds nothing that
        needs closing."""

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
        self._queue.append((owner_of(context), handle))
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
        heapq.heappush(self._timers, (when, self._number(), owner_of(context), timer))
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
        return self.call_soon(
            callback, *args, context=context
        )  # there are no threads here; finalizers of async generators call it

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by TimerHandle.cancel. Nothing to do: a cancelled timer is dropped when its turn
        comes."""

    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        future.number = self._number()
        future.owner = owner_of(contextvars.copy_context())
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
        task.add_done_callback(self._forget, context=NOBODY)
        if task.owner is not None:
            task.owner.tasks[task] = None
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        if isinstance(task, SimTask):
            del self._tasks[task]
            if task.owner is not None:
                del task.owner.tasks[task]
            if task._log_traceback:
                self._unseen.append(weakref.ref(task))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Running

    def _run_once(self) -> None:
        """One turn, as BaseEventLoop.run_forever calls it."""
        if not self._queue:
            self._advance()
        self._run_ready(len(self._queue))
        if self.steps > self._max_steps:
            raise self._stuck(
                f"after {self.steps} steps: raise max_steps if the run is really that long"
            )
        if self.steps - self._steps_then > MAX_STEPS_AT_ONE_TIME:
            raise self._stuck(f"in a livelock: {MAX_STEPS_AT_ONE_TIME} steps without time going on")

    def _run_ready(self, count: int) -> None:
        for _ in range(count):
            owner, handle = self._queue.popleft()
            if owner is not None and owner.paused:
                owner.backlog.append(handle)
            elif not handle.cancelled() and not _is_dead_timer(owner, handle):
                self.steps += 1
                self._running = owner
                handle._run()
            if self._failures and not self._unwinding:
                raise self._failures[0]

    def _advance(self) -> None:
        """Goes to the next time at which a timer fires, with all that fire then."""
        while self._timers and (not self._queue or self._timers[0][0] <= self._now):
            when, _, owner, timer = heapq.heappop(self._timers)
            if timer.cancelled() or _is_dead_timer(owner, timer):
                continue
            if when > self._now:
                self._now, self._steps_then = when, self.steps
            self._queue.append((owner, timer))
        if not self._queue:
            raise self._stuck("in a deadlock: nothing is ready and no timer is set")

    def resume(self, owner: Owner) -> None:
        """Lets a paused process run again, with all that has waited for it."""
        owner.paused = False
        self._queue.extend((owner, handle) for handle in owner.backlog)
        owner.backlog.clear()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs main to its end, then drops whatever still runs. Exceptions that nobody took care of
        fail the run."""
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
            # What waits for a timer in its finally is left behind: without this, asyncio would
            # report each of them.
            task._log_destroy_pending = False

    # Failing

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """asyncio reports here what nobody has caught. Crashed processes may: they are being
        unwound; and so may one that `stop_after` has stopped, which may have been left in the midst
        of anything."""
        source = context.get("task") or context.get("future")
        owner = source.owner if isinstance(source, SimTask | SimFuture) else self._running
        cause = context.get("exception")
        if owner is not None and isinstance(cause, NodeCrashed):
            owner.stopped = True
        if (
            self._unwinding
            or isinstance(cause, NodeCrashed)
            or (owner is not None and (owner.dead or owner.stopped))
        ):
            return
        whose = "no node" if owner is None else owner.name
        failure = SimulationFailed(
            f"{self._label}, at {self._now:.6f} s, on {whose}: {context.get('message')}: {cause!r}"
        )
        failure.__cause__ = cause
        self._failures.append(failure)

    def _report_unseen(self) -> None:
        """asyncio reports an exception never asked for when its task goes away. Some have not gone
        yet: collecting garbage takes long."""
        for reference in self._unseen:
            task = reference()
            if task is not None and task._log_traceback:
                self.call_exception_handler(
                    {
                        "message": "nobody asked for an exception",
                        "exception": task.exception(),
                        "task": task,
                    }
                )
        if self._failures:
            raise self._failures[0]

    def _stuck(self, why: str) -> SimulationStuck:
        waiting = [describe(task) for task in self._tasks][:SHOWN_TASKS]
        return SimulationStuck(
            "\n".join(
                [
                    f"{self._label}, at {self._now:.6f} s: {why}; {len(self._tasks)} tasks wait",
                    *waiting,
                ]
            )
        )

    # Refused

    def run_in_executor(self, *_: object) -> NoReturn:
        raise RuntimeError("a simulated loop has no threads: hand the work to world.offload")

    async def create_connection(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a simulated loop has no sockets: connect by world.network")

    async def create_server(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a simulated loop has no sockets: listen by world.network")


def _is_dead_timer(owner: Owner | None, handle: asyncio.Handle) -> bool:
    return owner is not None and owner.dead and isinstance(handle, asyncio.TimerHandle)
