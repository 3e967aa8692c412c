"""Futures and tasks whose hash is their number.

asyncio keeps tasks in sets (TaskGroup, wait, all_tasks). With hashes made of addresses their order,
and so the order of cancellations, would differ from run to run. Owns that repair alone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.world.sim.owner import Owner, owner_of

T = TypeVar("T")


class SimFuture(asyncio.Future[T]):
    number: int
    owner: Owner | None

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[T]):
    _log_destroy_pending: bool  # asyncio's own, which typeshed does not tell of

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        name: str,
        number: int,
        context: contextvars.Context,
    ) -> None:
        self.number = number
        self.owner = owner_of(context)
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number


def describe(task: asyncio.Task[Any]) -> str:
    """A line for an error: what the task is, whose, and where it waits."""
    owner = task.owner.name if isinstance(task, SimTask) and task.owner is not None else "-"
    frames = task.get_stack(limit=1)
    place = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "nowhere"
    return (
        f"  {owner}: {task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')}) waits "
        f"at {place}"
    )
