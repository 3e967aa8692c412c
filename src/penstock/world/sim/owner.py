"""Whose work is it? Every task, callback and timer belongs to the process that started it, by a
context variable that asyncio hands down.

Owns that bookkeeping for one simulated process (a node between a start and a crash). It must never
know what the process does.
"""

from __future__ import annotations

import asyncio
import contextvars


class Owner:
    """A simulated process. Dead, its timers no longer fire; paused, nothing of it runs until it is
    resumed, like a SIGSTOP; stopped at a change to its disk, it is as good as dead."""

    __slots__ = ("backlog", "context", "dead", "name", "paused", "stopped", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.stopped = False
        self.paused = False
        self.backlog: list[asyncio.Handle] = []
        self.tasks: dict[asyncio.Task[object], None] = {}  # a dict for its order
        self.context = contextvars.Context()
        self.context.run(_OWNER.set, self)


_OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar(
    "penstock_sim_owner", default=None
)
# For what belongs to no process: packets on their way, the simulation's own timers.
NOBODY = contextvars.Context()


def owner_of(context: contextvars.Context) -> Owner | None:
    return context.get(_OWNER)


def current_name() -> str:
    """For traces: the running process, or '-' outside of any."""
    owner = _OWNER.get()
    return "-" if owner is None else owner.name
