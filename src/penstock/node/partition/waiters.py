"""Those who wait until an offset of one partition is committed. One timer for all: they are many,
and most never need it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition


class _Waiter(NamedTuple):
    end_offset: int
    deadline: float
    future: asyncio.Future[None]


class CommitWaiters:
    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        # Mostly in the order of offsets, since appends are; a duplicate may wait for an earlier one
        # than the last.
        self._waiting: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, end_offset: int, deadline: float) -> asyncio.Future[None]:
        """Done when `committed` has reached the offset. The deadline is in seconds of the loop's
        clock."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(end_offset, deadline, loop.create_future())
        if self._waiting and end_offset < self._waiting[-1].end_offset:
            self._waiting = deque(sorted((*self._waiting, waiter), key=lambda one: one.end_offset))
        else:
            self._waiting.append(waiter)
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)
        return waiter.future

    def committed(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= offset:
            future = waiting.popleft().future
            if not future.done():
                future.set_result(None)

    def fail(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            _refuse(waiter, error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        error = KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"{self._partition}: not committed before the deadline"
        )
        for waiter in [one for one in self._waiting if one.deadline <= now]:
            _refuse(waiter, error)
        self._waiting = deque(one for one in self._waiting if one.deadline > now)
        if self._waiting:
            self._set_timer(min(one.deadline for one in self._waiting))


def _refuse(waiter: _Waiter, error: KafkaError) -> None:
    if not waiter.future.done():
        waiter.future.set_exception(error)
        # Who waited may have gone: then nobody asks for it, and that is no mistake.
        waiter.future.exception()
