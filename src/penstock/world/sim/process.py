"""Simulated processes, and the callbacks, futures and tasks that belong to them.

Every task, callback and timer belongs to the process that started it. A context variable, which
asyncio passes on, says which.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from penstock.world.sim.clock import SimClock, Speed

T = TypeVar("T")


class SimProcess:
    """A simulated process: a node between a start and a crash.

    When it is dead, its timers no longer fire. When it is paused, nothing of it runs until it is
    resumed, as after SIGSTOP. When it is busy, a callback takes virtual time, and the next one has
    to wait. When it is stopped at a change to its disk, its errors are ignored as if it were dead.

    `clock` is None if the process sees virtual time as it is. `speed` is None if computing takes no
    time; otherwise `ahead_s` is what the process has computed for and not waited for yet.
    """

    __slots__ = (
        "ahead_s",
        "backlog",
        "busy",
        "clock",
        "context",
        "dead",
        "name",
        "paused",
        "speed",
        "stopped",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.stopped = False
        self.paused = False
        self.busy = False
        self.clock: SimClock | None = None
        self.speed: Speed | None = None
        self.ahead_s = 0.0
        self.backlog: list[SimHandle | SimTimer] = []
        self.context = contextvars.Context()
        self.context.run(_PROCESS.set, self)


_PROCESS: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar(
    "penstock_sim_process", default=None
)
# The context of what belongs to no process: packets in transit, the simulation's own timers.
NO_PROCESS = contextvars.Context()


def process_of(context: contextvars.Context) -> SimProcess | None:
    return context.get(_PROCESS)


def current_process() -> SimProcess | None:
    return _PROCESS.get()


def current_name() -> str:
    """Return the name of the running process for traces, or '-' outside any process."""
    process = _PROCESS.get()
    return "-" if process is None else process.name


# A run makes tens of thousands of handles, so they lack what asyncio's have for its debug mode.


class SimHandle(asyncio.Handle):
    """A callback that is due now, or at the time at which a packet arrives."""

    __slots__ = ("process",)

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: SimProcess | None,
    ) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = context
        self.process = process

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        return self._callback is None

    def __repr__(self) -> str:
        return f"<SimHandle of {self._callback!r}>"


class SimTimer(asyncio.TimerHandle):
    """A timer of a process. It does not fire when the process is dead."""

    __slots__ = ("process",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: SimProcess | None,
    ) -> None:
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = context
        self.process = process

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        return self._callback is None

    def __repr__(self) -> str:
        return f"<SimTimer of {self._callback!r} at {self._when}>"


# asyncio keeps futures and tasks in sets (TaskGroup, wait, all_tasks). Hashes made of addresses
# would make the order of these sets, and so the order of cancellations, differ from run to run.
# Therefore their hash is a number.


class SimFuture(asyncio.Future[T]):
    __slots__ = ("_hash", "process")

    _hash: int
    process: SimProcess | None

    def __hash__(self) -> int:
        """Return the same number as in every other run: few futures are ever in a set."""
        try:
            return self._hash
        except AttributeError:
            self._hash = self.get_loop().next_number()  # type: ignore[attr-defined]  # a SimLoop
            return self._hash


class SimTask(asyncio.Task[T]):
    __slots__ = ("number", "process")

    _log_destroy_pending: bool  # asyncio's own attribute, which typeshed does not declare

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        name: str,
        number: int,
        context: contextvars.Context,
    ) -> None:
        self.number = number
        self.process = process_of(context)
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number


def describe(task: asyncio.Task[Any]) -> str:
    """Return a line for error messages: the task, its process and where it waits."""
    process = task.process.name if isinstance(task, SimTask) and task.process is not None else "-"
    frames = task.get_stack(limit=1)
    place = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "nowhere"
    return (
        f"  {process}: {task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')}) waits "
        f"at {place}"
    )
