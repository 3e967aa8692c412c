"""Callbacks for changes of a partition: called once per shell callback, however often the partition
changes in it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.node.delayed import ActionQueue

Callback = Callable[[], None]


class Watchers:
    __slots__ = ("_actions", "_callbacks", "_is_queued")

    def __init__(self, actions: ActionQueue) -> None:
        self._actions = actions
        # None is empty: most partitions of a node with many are idle.
        self._callbacks: dict[Callback, None] | None = None
        self._is_queued = False

    def add(self, callback: Callback) -> None:
        if self._callbacks is None:
            self._callbacks = {}
        self._callbacks[callback] = None

    def remove(self, callback: Callback) -> None:
        if self._callbacks is not None:
            self._callbacks.pop(callback, None)

    def notify(self) -> None:
        if self._callbacks and not self._is_queued:
            self._is_queued = True
            self._actions.add(self._call_all)

    def _call_all(self) -> None:
        self._is_queued = False
        for callback in list(self._callbacks or ()):
            callback()
