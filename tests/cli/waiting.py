"""Requests to a cluster, and waits for its state."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.client.client import Client
from penstock.world import World
from penstock.world.real import run

T = TypeVar("T")
TIMEOUT_S = 30.0


def ask(servers: str, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a client."""

    async def main(world: World) -> T:
        async with Client(world, servers) as client:
            return await work(client)

    return run(main)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.05)
