"""Requests of producers whose previous transaction is still being completed.

A coordinator answers EndTxn when the end of the transaction is decided, and the markers are written
after that. A producer that continues immediately is refused with CONCURRENT_TRANSACTIONS until they
are, and clients try again after 20 to 100 ms. Completion takes a few milliseconds. So the request
is held, and decided again when the transaction is complete, or at its deadline with whatever
response it gets then.

Requests of one transactional id are decided in the order of their arrival: none overtakes one that
is held.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

R = TypeVar("R")

# Decides a request, and returns its response or a future of it.
Attempt = Callable[[], R | Awaitable[R]]
# Returns True for a response that says CONCURRENT_TRANSACTIONS.
IsConcurrent = Callable[[R], bool]


@dataclass(slots=True, eq=False)
class _Held:
    attempt: Attempt[Any]
    is_concurrent: IsConcurrent[Any]
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle | None = None


class HeldRequests:
    """The requests that are held, by transactional id."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[_Held]] = {}

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._lines

    def add(
        self,
        transactional_id: str,
        attempt: Attempt[R],
        is_concurrent: IsConcurrent[R],
        seconds: float,
    ) -> asyncio.Future[R]:
        """Hold a request for some seconds at most. Return a future of its response."""
        loop = asyncio.get_running_loop()
        held = _Held(attempt, is_concurrent, loop.create_future())
        held.timer = loop.call_later(seconds, self._expire, transactional_id, held)
        self._lines.setdefault(transactional_id, deque()).append(held)
        return held.future

    def release(self, transactional_id: str) -> None:
        """Decide requests in their order, up to one that is still refused."""
        line = self._lines.get(transactional_id)
        if line is None:
            return
        while line:
            held = line[0]
            if not held.future.done():
                response = held.attempt()
                if not inspect.isawaitable(response) and held.is_concurrent(response):
                    return
                _settle(held, response)
            line.popleft()
            _cancel_timer(held)
        del self._lines[transactional_id]

    def close(self) -> None:
        """Let every request have the response that it gets now."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for held in line:
                _cancel_timer(held)
                if not held.future.done():
                    _settle(held, held.attempt())

    def _expire(self, transactional_id: str, held: _Held) -> None:
        line = self._lines[transactional_id]
        line.remove(held)
        if not line:
            del self._lines[transactional_id]
        if not held.future.done():
            _settle(held, held.attempt())


def _cancel_timer(held: _Held) -> None:
    if held.timer is not None:
        held.timer.cancel()


def _settle(held: _Held, response: object) -> None:
    """Complete the future, unless its connection was lost and has cancelled it."""
    if inspect.isawaitable(response):
        asyncio.ensure_future(response).add_done_callback(
            lambda done: None if done.cancelled() else _settle(held, done.result())
        )
    elif not held.future.done():
        held.future.set_result(response)
