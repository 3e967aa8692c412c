"""The memory that the requests of all connections may take together: answers that wait for an
earlier one, and receive buffers, half-received requests included. Not requests whose handlers wait:
an acks=all write waits for followers, who must be read to end that.

When it runs short nobody is read but one: the connection that has waited longest for the rest of a
request. So memory grows by that one request at most; it completes and gives back what it held, and
the next has its turn: nobody waits for ever, and no two wait for each other. All are read again
once a quarter is free. Where even that does not help (a peer that sends half a request and no more,
answers that wait behind one that never comes), whoever holds most is closed after a while.

It must never know what is in the memory.
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
        """Gives back what it holds for nothing."""

    def set_reading(self) -> None:
        """Asks `may_read` again."""

    def close(self, reason: str) -> None: ...


M = TypeVar("M", bound=Member)


class Memory:
    def __init__(self, limit: int, members: Mapping[M, None]) -> None:
        self._limit = limit
        self._members = members
        self._halves: dict[
            Member, None
        ] = {}  # those that wait for the rest of a request, in their order
        self._short_since: float | None = None
        self._told = False
        self.used = 0
        self.short = False
        self.times_short = 0

    def hold(self, member: Member, held: int) -> None:
        """What a member takes now."""
        if held == member.memory_held:
            return
        self.used += held - member.memory_held
        member.memory_held = held
        if not self.short and self.used >= self._limit:
            self._run_short()
        elif self.short and self.used <= self._limit // 4 * 3:
            self._relieve()

    def may_read(self, member: Member, *, half: bool) -> bool:
        """`half`: it has a part of a request, and would read the rest."""
        if not self.short:
            return True
        if half:
            self._halves.setdefault(member)
        else:
            self.forget(member)
        return half and self._first is member

    def forget(self, member: Member) -> None:
        was_first = self._first is member
        self._halves.pop(member, None)
        if was_first and (first := self._first) is not None:
            first.set_reading()

    def check(self, now: float) -> None:
        """Called from time to time."""
        if not self.short:
            self._short_since, self._told = None, False
        elif self._short_since is None:
            self._short_since = now
        elif now - self._short_since >= MEMORY_SHORT_S:
            largest = max(self._members, key=lambda member: member.memory_held)
            largest.close(
                f"it holds {largest.memory_held} bytes of requests, the most of all, and memory "
                "has been short for too long"
            )

    @property
    def _first(self) -> Member | None:
        return next(iter(self._halves), None)

    def _run_short(self) -> None:
        self.short = True
        self.times_short += 1
        for member in list(self._members):
            member.trim()
        if self.short:
            if not self._told:
                self._told = True
                log.warning(
                    "requests hold %d bytes of memory: no more are read until some are done",
                    self.used,
                )
            self._ask(list(self._members))

    def _relieve(self) -> None:
        """Whoever held nothing comes first, or a flood of halves would keep it out for ever."""
        halves, self._halves = self._halves, {}
        self.short = False
        self._ask([member for member in self._members if member not in halves])
        self._ask(list(halves))

    def _ask(self, members: Sequence[Member]) -> None:
        for member in members:
            member.set_reading()
