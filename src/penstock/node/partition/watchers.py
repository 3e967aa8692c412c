"""Those who want to know when a partition has moved: told at most once a turn of the event loop,
however often it moved in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Callback = Callable[[], None]


class Watchers:
    def __init__(self) -> None:
        self._callbacks: dict[Callback, None] = {}
        self._due = False

    def add(self, callback: Callback) -> None:
        self._callbacks[callback] = None

    def remove(self, callback: Callback) -> None:
        self._callbacks.pop(callback, None)

    def notice(self) -> None:
        if self._callbacks and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._due = False
        for callback in list(self._callbacks):
            callback()
