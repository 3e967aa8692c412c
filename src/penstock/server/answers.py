"""Answers in the order of their requests, however long each takes. Owns what is in flight on one
connection, and how much it is.

A request that is answered at once, with nothing before it, never comes here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from penstock.handlers.context import RequestContext
from penstock.protocol.schema import Records


class Slot:
    """The place of one answer. `parts` is empty where no answer is to be sent."""

    __slots__ = ("context", "future", "parts", "ready", "size")

    def __init__(self, context: RequestContext, size: int) -> None:
        self.context = context
        self.size = size
        self.ready = False
        self.parts: list[Records] = []
        self.future: asyncio.Future[Any] | None = None


class Answers:
    """`bytes` is what is under way, by which a connection is paced; `waiting_bytes` is what of it
    is in memory: answers behind one that is not there yet. What a request brought is in the log, or
    was taken over by its handler, once that has begun to wait."""

    __slots__ = ("_slots", "bytes", "waiting_bytes")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self.bytes = 0
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, context: RequestContext, size: int) -> Slot:
        """A place behind all others. The size is that of the request, until its answer is there."""
        slot = Slot(context, size)
        self._slots.append(slot)
        self.bytes += size
        return slot

    def fill(self, slot: Slot, parts: list[Records]) -> None:
        """Ranges of files are not counted: they are not in memory."""
        size = sum(len(part) for part in parts if isinstance(part, bytes | bytearray | memoryview))
        self.bytes += size - slot.size
        self.waiting_bytes += size
        slot.size, slot.parts, slot.ready, slot.future = size, parts, True, None

    def next_ready(self) -> list[Records] | None:
        """Takes the first answer, if it is there."""
        if not self._slots or not self._slots[0].ready:
            return None
        slot = self._slots.popleft()
        self.bytes -= slot.size
        self.waiting_bytes -= slot.size
        return slot.parts

    def cancel(self) -> None:
        """Nobody waits any more."""
        slots, self._slots = self._slots, deque()
        self.bytes = self.waiting_bytes = 0
        for slot in slots:
            if slot.future is not None:
                slot.future.cancel()
