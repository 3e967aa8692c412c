"""Responses of coordinators, which may have to be awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

R = TypeVar("R")
S = TypeVar("S")


def then(response: R | Awaitable[R], convert: Callable[[R], S]) -> S | Awaitable[S]:
    """Convert a response, now or when it is there."""
    return _then(response, convert) if inspect.isawaitable(response) else convert(response)


async def _then(response: Awaitable[R], convert: Callable[[R], S]) -> S:
    return convert(await response)


def all_of(responses: Iterable[R | Awaitable[R]]) -> list[R] | Awaitable[list[R]]:
    """Collect responses in their order; synchronously if none of them must be awaited."""
    collected = list(responses)
    return (
        _gather(collected)
        if any(inspect.isawaitable(response) for response in collected)
        else cast(list[R], collected)
    )


async def _gather(responses: list[R | Awaitable[R]]) -> list[R]:
    waiting = [
        asyncio.ensure_future(response) for response in responses if inspect.isawaitable(response)
    ]
    await asyncio.gather(*waiting)
    results = iter(waiting)
    return [
        next(results).result() if inspect.isawaitable(response) else response
        for response in responses
    ]
