"""Work for one request over several turns of the event loop.

A generator yields when its turn is over, and returns the response. `run` takes the first turn at
once, so that small requests are handled in the order of their connection. A response that takes
more turns is exclusive: its connection takes no other request meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator
from typing import Any, TypeVar, cast

from penstock.handlers.context import Exclusive

R = TypeVar("R")

# Yields when a turn is over, and returns the result.
Turns = Generator[None, None, R]


def run(result: Any) -> Any:
    """Return the response of a handler or check, or an exclusive awaitable of it."""
    if not inspect.isgenerator(result):
        return result
    turns = cast("Turns[Any]", result)
    try:
        next(turns)
    except StopIteration as done:
        return done.value
    return Exclusive(_finish(turns))


async def _finish(turns: Turns[Any]) -> Any:
    """Take the other turns, and wait for the response."""
    while True:
        await asyncio.sleep(0)
        try:
            next(turns)
        except StopIteration as done:
            return await done.value if inspect.isawaitable(done.value) else done.value
