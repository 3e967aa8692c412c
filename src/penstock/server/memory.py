"""The memory that connections hold for their peers: receive buffers with parts of requests, decoded
requests whose handlers wait, responses that wait behind another one or for a peer that does not
read.

When memory is short, connections are still read, but a receive buffer grows only to
SHORT_READ_BYTES. So requests of usual size are served, and memory exceeds its limit by at most that
much per connection. A connection whose buffer is full waits in a line. The first of the line may
grow without limit, until its request is complete, so that none waits for ever and no two wait for
each other. The others may grow by SHORT_READ_BYTES in turn, up to a quarter above the limit, which
shows if their peers still send.

A peer that makes no progress while memory is short is *stalled*: it has sent nothing of a request
that it started, or has read nothing of its responses. Stalled connections are closed after a
fraction of a second, the longest stalled first, as many as needed until a quarter of the memory is
free. If memory stays short for long, the connections that hold the most are closed.

Clients share one such memory. Listeners of controllers and between brokers have another one, so
that no client can delay the traffic that keeps brokers alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from penstock.limits import (
    EVICTIONS_A_TURN,
    MEMORY_CHECK_S,
    MEMORY_SHORT_S,
    MEMORY_STALLED_S,
    RESUMED_A_TURN,
    SHORT_READ_BYTES,
)
from penstock.server.receive import NO_LIMIT

log = logging.getLogger(__name__)


class Member(Protocol):
    memory_held: int

    def trim(self) -> None:
        """Release unused memory."""

    def set_reading(self) -> None:
        """Pause or resume reading, as `may_read` says."""

    def stalled_s(self, now: float) -> float:
        """Return for how long the peer has made no progress with what it holds memory for."""

    def evict(self, reason: str) -> None:
        """Close without sending anything more."""


class Memory:
    """Make it within a running event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._holders: dict[Member, None] = {}
        # The member that may grow without limit, and the size up to which others may grow.
        self._growing: Member | None = None
        self._granted: dict[Member, int] = {}
        # Members whose buffers are full, in their order.
        self._line: dict[Member, None] = {}
        # Members that waited in the line, and are not resumed yet.
        self._resuming: deque[Member] = deque()
        self._short_since = self._relieved_at = -MEMORY_SHORT_S
        self._check_timer: asyncio.Handle | None = None
        self._logged_at: float | None = None
        self.used = 0
        self.short = False
        self.times_short = 0
        self.evicted = 0

    def hold(self, member: Member, held: int) -> None:
        """Set the memory that a member holds now."""
        if held == member.memory_held:
            return
        self.used += held - member.memory_held
        member.memory_held = held
        if held:
            self._holders[member] = None
        else:
            self._holders.pop(member, None)
        if not self.short and self.used >= self._limit:
            self._run_short()
        elif self.short and self.used <= self._limit // 4 * 3:
            self._relieve()

    def may_read(self, member: Member, *, partial: bool, full: bool) -> bool:
        """Return True if the member may read while memory is short. `partial` says that it has a
        part of a request, `full` that its buffer must grow beyond `growth_limit`."""
        if not partial:
            self.forget(member)
            return True
        if full and self._growing is None:
            self._growing = member
        elif full:
            self._line.setdefault(member)
            return False
        self._line.pop(member, None)
        return True

    def growth_limit(self, member: Member) -> int:
        """Return the size to which the member's buffer may grow while memory is short."""
        if self._growing is member:
            return NO_LIMIT
        return self._granted.get(member, SHORT_READ_BYTES)

    def forget(self, member: Member) -> None:
        """The member has no part of a request any more, or is not read for another reason."""
        self._line.pop(member, None)
        self._granted.pop(member, None)
        if self._growing is member:
            self._growing = None
            if self._line:
                next(iter(self._line)).set_reading()

    # Running short

    def _run_short(self) -> None:
        self.short = True
        self.times_short += 1
        now = self._loop.time()
        if now - self._relieved_at > MEMORY_SHORT_S / 10:  # otherwise it is the same shortage
            self._short_since = now
        for member in list(self._holders):
            member.trim()
        if self.short:
            self._set_reading()
            if self._check_timer is None:
                # Not now: the caller is in the middle of a connection's callback.
                self._check_timer = self._loop.call_soon(self._check)

    def _relieve(self) -> None:
        self._relieved_at = self._loop.time()
        self.short = False
        self._growing = None
        self._granted.clear()
        is_resuming = bool(self._resuming)
        self._resuming.extend(self._line)
        waiting, self._line = self._line, {}
        for member in list(self._holders):
            if member not in waiting:
                member.set_reading()
        if not is_resuming:
            self._resume()

    def _resume(self) -> None:
        """Resume some of the members that waited in the line. All of them have bytes to read, and
        reading from all at once would delay other connections."""
        for _ in range(min(len(self._resuming), RESUMED_A_TURN)):
            self._resuming.popleft().set_reading()
        if self._resuming:
            self._loop.call_soon(self._resume)

    def _set_reading(self) -> None:
        for member in list(self._holders):
            member.set_reading()

    def _check(self) -> None:
        """Close members while memory is short: the stalled ones, and if it has been short for too
        long the largest ones."""
        self._check_timer = None
        now = self._loop.time()
        self._evict(self._stalled(now), "its peer has stalled, and memory is short")
        if self.short and now - self._short_since >= MEMORY_SHORT_S:
            self._evict(
                sorted(self._holders, key=lambda member: -member.memory_held),
                "it holds more than others, and memory has been short for too long",
            )
        if self.short:
            self._grant()
            self._check_timer = self._loop.call_later(MEMORY_CHECK_S, self._check)

    def _grant(self) -> None:
        """Let members of the line read a little more."""
        free = max(0, self._limit // 4 * 5 - self.used)
        for member in list(self._line)[: min(free // SHORT_READ_BYTES, EVICTIONS_A_TURN)]:
            self._granted[member] = member.memory_held + SHORT_READ_BYTES
            member.set_reading()

    def _stalled(self, now: float) -> list[Member]:
        """Return the stalled members, the longest stalled first."""
        times = {member: member.stalled_s(now) for member in self._holders}
        return sorted(
            (member for member in times if times[member] >= MEMORY_STALLED_S),
            key=lambda member: -times[member],
        )

    def _evict(self, members: Iterable[Member], reason: str) -> None:
        used, before = self.used, self.evicted
        for member in members:
            if not self.short or self.evicted - before >= EVICTIONS_A_TURN:
                break
            self.evicted += 1
            member.evict(f"{reason}. It holds {member.memory_held} bytes")
        now = self._loop.time()
        if self.evicted > before and (
            self._logged_at is None or now - self._logged_at >= MEMORY_SHORT_S
        ):
            self._logged_at = now
            log.warning(
                "connections held %d bytes of requests and responses, the limit is %d: closed %d "
                "connections, %d since the start. The last one: %s",
                used,
                self._limit,
                self.evicted - before,
                self.evicted,
                reason,
            )
