"""Simulated processes, and the futures and tasks that belong to them.

Every task, callback and timer belongs to the process that started it. A context variable, which
asyncio passes on, says which.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SimProcess:
    """A simulated process: a node between a start and a crash.

    When it is dead, its timers no longer fire. When it is paused, nothing of it runs until it is
    resumed, as after SIGSTOP. When it is stopped at a change to its disk, its errors are ignored as
    if it were dead.
    """

    __slots__ = ("backlog", "context", "dead", "name", "paused", "stopped", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.stopped = False
        self.paused = False
        self.backlog: list[asyncio.Handle] = []
        self.tasks: dict[asyncio.Task[object], None] = {}  # a dict for its order
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


# asyncio keeps futures and tasks in sets (TaskGroup, wait, all_tasks). Hashes made of addresses
# would make the order of these sets, and so the order of cancellations, differ from run to run.
# Therefore their hash is their number.


class SimFuture(asyncio.Future[T]):
    number: int
    process: SimProcess | None

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[T]):
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
