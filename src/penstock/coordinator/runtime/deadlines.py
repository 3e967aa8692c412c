"""Deadlines by key. PURE: the caller supplies the time.

A key has at most one deadline. Every heartbeat extends a session, so extending costs one dictionary
entry: an entry of the heap may be too early, and is pushed again with the right time when it comes
up.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])


class Deadlines(Generic[K]):
    """Keys with equal deadlines come in the order of the keys, so that simulations reproduce."""

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []
        # The earliest entry of the heap for a key.
        self._queued: dict[K, int] = {}

    def set(self, key: K, due_ms: int) -> None:
        """Set the key's deadline, replacing an earlier one."""
        self._due[key] = due_ms
        queued = self._queued.get(key)
        if queued is None or due_ms < queued:
            self._queue(key, due_ms)

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def restore(self, key: K, due_ms: int | None) -> None:
        """Set the deadline that the key had before, or none."""
        if due_ms is None:
            self.cancel(key)
        else:
            self.set(key, due_ms)

    def get(self, key: K) -> int | None:
        return self._due.get(key)

    def next_ms(self) -> int | None:
        """Return the earliest deadline."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key with the earliest deadline, if that has passed."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._queued[key], self._due[key]
        return key

    def _queue(self, key: K, due_ms: int) -> None:
        self._queued[key] = due_ms
        heappush(self._heap, (due_ms, key))

    def _drop_stale(self) -> None:
        """Remove or re-queue entries until the first one is a key's actual deadline."""
        while self._heap:
            queued_ms, key = self._heap[0]
            due_ms = self._due.get(key)
            if due_ms == queued_ms:
                return
            heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue
            del self._queued[key]
            if due_ms is not None:
                self._queue(key, due_ms)
