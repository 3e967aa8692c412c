"""Requests that wait until a watermark of one partition reaches an offset: the high watermark for
acks=all, the low watermark for DeleteRecords.

They share one timer: there are many of them, and most complete long before their deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition

# Called once: with None when the offset is reached, or with the error that ended the wait.
Reached = Callable[[KafkaError | None], None]


class _Waiter(NamedTuple):
    end_offset: int
    deadline: float
    callback: Reached


class OffsetWaiters:
    """Deadlines are in seconds of the event loop's clock. Callbacks run inside the call that moves
    the watermark, so they must only queue work. `lateness` is the message at the deadline."""

    __slots__ = ("_lateness", "_partition", "_timer", "_timer_deadline", "_waiters")

    def __init__(self, partition: TopicPartition, lateness: str) -> None:
        self._partition = partition
        self._lateness = lateness
        # In the order of their offsets. Appends come in that order; only a duplicate may wait for
        # an earlier offset than the last one.
        # None is empty, and an empty deque takes half a kilobyte.
        self._waiters: deque[_Waiter] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0.0

    def __len__(self) -> int:
        return len(self._waiters or ())

    def add(self, end_offset: int, deadline: float, callback: Reached) -> None:
        waiter = _Waiter(end_offset, deadline, callback)
        if self._waiters is None:
            self._waiters = deque()
        if self._waiters and end_offset < self._waiters[-1].end_offset:
            self._waiters = deque(
                sorted((*self._waiters, waiter), key=lambda waiter: waiter.end_offset)
            )
        else:
            self._waiters.append(waiter)
        if self._timer is None or deadline < self._timer_deadline:
            self._set_timer(deadline)

    def reached(self, offset: int) -> None:
        """Complete the waiters up to the watermark."""
        waiters = self._waiters
        while waiters and waiters[0].end_offset <= offset:
            waiters.popleft().callback(None)

    def fail(self, error: KafkaError) -> None:
        """Complete all waiters with an error."""
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            waiter.callback(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)
        self._timer_deadline = deadline

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self._partition}: {self._lateness}")
        waiters = self._waiters or ()
        expired = [waiter for waiter in waiters if waiter.deadline <= now]
        self._waiters = deque(waiter for waiter in waiters if waiter.deadline > now)
        for waiter in expired:
            waiter.callback(error)
        if self._waiters:
            self._set_timer(min(waiter.deadline for waiter in self._waiters))


def commit_future() -> tuple[asyncio.Future[None], Reached]:
    """Return a future, and the callback that completes it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return future, partial(_complete, future)


def _complete(future: asyncio.Future[None], error: KafkaError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        # The waiter may have been cancelled; retrieve the exception so that asyncio does not log
        # it.
        future.exception()
