"""The background tasks of a node. If one of them fails, the node stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Supervisor:
    """Parts of the node start their tasks with `spawn`. `wait_failed` raises the first error."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._error: BaseException | None = None
        self._failed = asyncio.Event()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def fail(self, error: BaseException) -> None:
        """Stop the node because of an error that it cannot recover from. Later errors are
        dropped."""
        if self._error is None:
            self._error = error
            self._failed.set()

    async def wait_failed(self) -> None:
        """Never return; raise the error that stops the node."""
        await self._failed.wait()
        assert self._error is not None
        raise self._error

    async def cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
