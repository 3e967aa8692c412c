"""Responses that wait for an event, and the queue that completes them without another iteration of
the event loop. Kafka calls these DelayedOperation and ActionQueue.

An append, a follower's fetch or a timeout moves offsets somewhere deep in a call. What waits for
the offsets must not run there: it would re-enter the partition, or the connection, that is being
worked on. So the change adds an action to the node's `ActionQueue`. Every shell callback that the
event loop makes (bytes received, a timer, a completed future) runs inside `with actions:`, and the
queue runs its actions when the outermost such callback is about to return. A produce request and
the fetch that it wakes are therefore answered in the same callback.

Code that changes offsets outside of such a callback, a task for example, needs no care: an action
that is added there is run by `call_soon`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from penstock.limits import ACTIONS_S
from penstock.world import Clock

T = TypeVar("T")
Action = Callable[[], None]


class ActionQueue:
    """The actions of one node, in the order in which they were added."""

    __slots__ = ("_actions", "_callbacks", "_clock", "_scheduled")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._actions: deque[Action] = deque()
        # Nested `with` blocks; actions run when the outermost one ends.
        self._callbacks = 0
        self._scheduled = False

    def add(self, action: Action) -> None:
        self._actions.append(action)
        if not self._callbacks:
            self._schedule()

    def __enter__(self) -> None:
        self._callbacks += 1

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            if self._actions and self._callbacks == 1:
                self._run()
        finally:
            self._callbacks -= 1

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._scheduled = False
        with self:
            pass

    def _run(self) -> None:
        """Run the actions, including those that they add, but not for so long that other
        connections wait."""
        actions, monotonic = self._actions, self._clock.monotonic
        end = monotonic() + ACTIONS_S
        while actions:
            action = actions.popleft()
            try:
                action()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001  # as the event loop does
                # A failed action must not fail the callback that runs it.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"action {action!r} failed", "exception": error}
                )
            if actions and monotonic() >= end:
                self._schedule()
                return


class DelayedResponse(Generic[T]):
    """A response that is complete later, at most once.

    `on_done` is called inside `complete`, `fail` or `cancel`, where an asyncio.Future would wait
    for the next iteration of the event loop. So these three are called from actions, timers and
    connections, and not from within a partition.
    """

    __slots__ = ("_error", "_on_done", "_response", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._response: T | None = None
        self._error: BaseException | None = None
        self._on_done: Callable[[Any], None] | None = None

    def complete(self, response: T) -> None:
        if not self.is_done:
            self._response = response
            self._end()

    def fail(self, error: BaseException) -> None:
        if not self.is_done:
            self._error = error
            self._end()

    def cancel(self) -> None:
        """Drop the response: the client has disconnected."""
        self.fail(asyncio.CancelledError())

    def result(self) -> T:
        """Return the response of a complete operation, or raise its error."""
        if self._error is not None:
            raise self._error
        return cast(T, self._response)

    def on_done(self, callback: Callable[[DelayedResponse[T]], None]) -> None:
        if self.is_done:
            callback(self)
        else:
            self._on_done = callback

    def ended(self) -> None:
        """Release what the operation holds; called once, before `on_done`."""

    def _end(self) -> None:
        self.is_done = True
        self.ended()
        if self._on_done is not None:
            self._on_done(self)

    def __await__(self) -> Generator[Any, None, T]:
        """For callers that have a task; the server uses `on_done`."""
        if not self.is_done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.on_done(lambda _done: None if future.done() else future.set_result(None))
            try:
                yield from future.__await__()
            finally:
                self.cancel()
        return self.result()
