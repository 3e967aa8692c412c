"""The memory of all connections together: responses that wait behind another one, and receive
buffers with parts of requests. Requests whose handlers wait do not count: an acks=all write waits
for followers, whose requests must be read.

When memory is short, only one connection is read: the one that has waited longest for the rest of a
request. So memory grows by at most that request. When it is complete it releases its memory, and
the next connection has its turn, so that none waits for ever and no two wait for each other. All
are read again when a quarter of the memory is free. If that does not help (a peer that sends half a
request and no more, responses that wait behind one that never comes), the connection that holds
most is closed after a while.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from penstock.limits import MEMORY_SHORT_S

log = logging.getLogger(__name__)


class Member(Protocol):
    memory_held: int

    def trim(self) -> None:
        """Release unused memory."""

    def set_reading(self) -> None:
        """Pause or resume reading, as `may_read` says."""

    def close(self, reason: str) -> None: ...


M = TypeVar("M", bound=Member)


class Memory:
    def __init__(self, limit: int, members: Mapping[M, None]) -> None:
        self._limit = limit
        self._members = members
        # Members that wait for the rest of a request, in their order.
        self._partial: dict[Member, None] = {}
        self._short_since: float | None = None
        self._is_logged = False
        self.used = 0
        self.short = False
        self.times_short = 0

    def hold(self, member: Member, held: int) -> None:
        """Set the memory that a member holds now."""
        if held == member.memory_held:
            return
        self.used += held - member.memory_held
        member.memory_held = held
        if not self.short and self.used >= self._limit:
            self._run_short()
        elif self.short and self.used <= self._limit // 4 * 3:
            self._relieve()

    def may_read(self, member: Member, *, half: bool) -> bool:
        """Return True if the member may read. `half` says that it has a part of a request."""
        if not self.short:
            return True
        if half:
            self._partial.setdefault(member)
        else:
            self.forget(member)
        return half and self._first is member

    def forget(self, member: Member) -> None:
        was_first = self._first is member
        self._partial.pop(member, None)
        if was_first and (first := self._first) is not None:
            first.set_reading()

    def check(self, now: float) -> None:
        """Close the largest member if memory has been short for too long; called periodically."""
        if not self.short:
            self._short_since, self._is_logged = None, False
        elif self._short_since is None:
            self._short_since = now
        elif now - self._short_since >= MEMORY_SHORT_S:
            largest = max(self._members, key=lambda member: member.memory_held)
            largest.close(
                f"it holds {largest.memory_held} bytes of requests, more than any other "
                "connection, and memory has been short for too long"
            )

    @property
    def _first(self) -> Member | None:
        return next(iter(self._partial), None)

    def _run_short(self) -> None:
        self.short = True
        self.times_short += 1
        for member in list(self._members):
            member.trim()
        if self.short:
            if not self._is_logged:
                self._is_logged = True
                log.warning(
                    "requests hold %d bytes of memory: reading no more until some complete",
                    self.used,
                )
            self._set_reading(list(self._members))

    def _relieve(self) -> None:
        """Resume connections without a partial request first; otherwise they starve."""
        partial, self._partial = self._partial, {}
        self.short = False
        self._set_reading([member for member in self._members if member not in partial])
        self._set_reading(list(partial))

    def _set_reading(self, members: Sequence[Member]) -> None:
        for member in members:
            member.set_reading()
