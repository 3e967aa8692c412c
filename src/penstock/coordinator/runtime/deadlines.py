"""What is due when. PURE: time comes in from outside.

A key has at most one deadline. Sessions are prolonged with every heartbeat, so that must cost a
dictionary entry and nothing else: an entry of the heap may be early, and goes back with the right
time when it comes up.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])


class Deadlines(Generic[K]):
    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []
        # The earliest entry of the heap for a key.
        self._queued: dict[K, int] = {}

    def set(self, key: K, due_ms: int) -> None:
        """In the place of the key's former deadline, if it had one."""
        self._due[key] = due_ms
        queued = self._queued.get(key)
        if queued is None or due_ms < queued:
            self._queue(key, due_ms)

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def get(self, key: K) -> int | None:
        return self._due.get(key)

    def next_ms(self) -> int | None:
        """When to look again; never late."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """A key whose time has come, the earliest first; it has no deadline any more."""
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
        """Until the first entry of the heap is true."""
        while self._heap:
            due_ms, key = self._heap[0]
            wanted = self._due.get(key)
            if wanted == due_ms:
                return
            heappop(self._heap)
            if self._queued.get(key) != due_ms:
                continue
            del self._queued[key]
            if wanted is not None:
                self._queue(key, wanted)
