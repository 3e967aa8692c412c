"""The real world: uvloop, files, sockets, threads and a child process.

Owns the forms of `penstock.world`'s interfaces that a broker runs with, and how its event loop is
run. Imported by `start`, `cli`, `spark` and `console` alone; it must never know of anything above
the seam.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.world import World
from penstock.world.real.clock import RealClock
from penstock.world.real.disk import RealDisk, RealFile
from penstock.world.real.network import RealNetwork
from penstock.world.real.offload import RealOffload
from penstock.world.real.rng import RealRng

__all__ = [
    "RealClock",
    "RealDisk",
    "RealFile",
    "RealNetwork",
    "RealOffload",
    "RealRng",
    "real_world",
    "run",
]

T = TypeVar("T")


def real_world() -> World:
    """A world for one node. What it starts (threads, a child process) ends with the process; `run`
    ends it with the event loop."""
    return World(RealClock(), RealRng(), RealDisk(), RealNetwork(), RealOffload())


def run(main: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    """Runs main in the real world until it returns, on uvloop where there is one."""
    offload = RealOffload()
    world = World(RealClock(), RealRng(), RealDisk(), RealNetwork(), offload)

    async def run_and_close() -> T:
        try:
            return await main(world)
        finally:
            await offload.close()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(run_and_close())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Windows has no uvloop
        return None
    return uvloop.new_event_loop
