"""The responses of one connection that are not ready, or wait behind one that is not.

Responses leave in the order of their requests, however long each takes. A response that is ready
immediately, with none before it, is never put here.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.schema import Records


class Pending(Protocol):
    """An asyncio.Future or a DelayedResponse."""

    def cancel(self) -> Any: ...


class ResponseSlot:
    """The place of one response. `parts` stays empty if none is sent (acks=0). `times` are those of
    the request's arrival, and of the beginning and the return of its handler, for metrics."""

    __slots__ = ("context", "held", "is_ready", "parts", "pending", "size", "timed", "times")

    def __init__(self, context: RequestContext, size: int, held: int) -> None:
        self.context = context
        self.size = size
        self.held = held
        self.is_ready = False
        self.parts: list[Records] = []
        self.pending: Pending | None = None
        # Of a handler whose later turns count for a quota.
        self.timed: Any = None
        self.times = (0.0, 0.0, 0.0)


class ResponseQueue:
    """`bytes` are those of requests whose responses are not ready and of responses that wait; the
    connection stops to read at a bound on them. `held_bytes` is the memory of both: decoded
    requests, and responses. The records of a request are in the log by the time that its handler
    waits, or its handler has a copy. `slots` is public to be tested for emptiness cheaply."""

    __slots__ = ("bytes", "held_bytes", "slots")

    def __init__(self) -> None:
        self.slots: deque[ResponseSlot] = deque()
        self.bytes = 0
        self.held_bytes = 0

    def add(self, context: RequestContext, size: int, held: int = 0) -> ResponseSlot:
        """Add a place at the end. The size is that of the request until the response is ready;
        `held` is the memory that the request takes until then."""
        slot = ResponseSlot(context, size, held)
        self.slots.append(slot)
        self.bytes += size
        self.held_bytes += held
        return slot

    def fill(self, slot: ResponseSlot, parts: list[Records]) -> None:
        """Set the response. File ranges do not count: they are not in memory."""
        size = sum(len(part) for part in parts if isinstance(part, bytes | bytearray | memoryview))
        self.bytes += size - slot.size
        self.held_bytes += size - slot.held
        slot.size = slot.held = size
        slot.parts, slot.is_ready, slot.pending = parts, True, None

    def pop_ready(self) -> list[Records] | None:
        """Take the first response, if it is ready."""
        if not self.slots or not self.slots[0].is_ready:
            return None
        slot = self.slots.popleft()
        self.bytes -= slot.size
        self.held_bytes -= slot.held
        return slot.parts

    def cancel(self) -> None:
        """Cancel the handlers that wait: the connection is closed."""
        slots, self.slots = self.slots, deque()
        self.bytes = self.held_bytes = 0
        for slot in slots:
            if slot.pending is not None:
                slot.pending.cancel()
