"""The real world: uvloop, files, sockets, threads and a child process.

Only `start`, `cli`, `spark` and `console` import this package.
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
    """Return a world for one node. Its threads and its child process end with this process; `run`
    ends them with the event loop."""
    return World(RealClock(), RealRng(), RealDisk(), RealNetwork(), RealOffload())


def run(main: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    """Run `main` in the real world until it returns, on uvloop if it is installed."""
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
