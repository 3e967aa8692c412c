"""The memory that connections hold for their peers: receive buffers with parts of requests, decoded
requests whose handlers wait, responses that wait behind another one or for a peer that does not
read.

When memory is short, connections are still read, but a receive buffer grows only to
SHORT_READ_BYTES. So requests of usual size are served, and memory exceeds its limit by at most that
much per connection. A connection whose buffer is full waits in a line, as for Kafka's MemoryPool.
The first of the line may grow until its request is complete, so that none waits forever and no two
wait for each other. Others may grow as well if their whole requests fit into a quarter above the
limit.

A peer is *slow* if its request arrives, or its responses are taken, at less than
MIN_FRAME_BYTES_PER_S, or if it is muted for its quota while it holds requests. While memory is
short, slow connections are closed, the slowest first, as many as needed until a quarter of the
memory is free. Others are never closed: they complete in turn.

Clients share one such memory. Listeners of controllers and between brokers have another one, so
that no client can delay the traffic that keeps brokers alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from math import inf
from typing import Protocol

from penstock.limits import (
    CHECKED_MEMBERS_A_TURN,
    EVICTED_BYTES,
    EVICTIONS_A_TURN,
    MAX_MEMORY_CHECK_S,
    MEMORY_CHECK_S,
    MIN_FRAME_BYTES_PER_S,
    REFUSALS_LOGGED_S,
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

    def rate(self, now: float) -> float:
        """Return at which rate (bytes/s) the peer sends or takes what it holds memory for; infinity
        if it waits for the server."""

    def missing_bytes(self) -> int:
        """Return by how much the buffer must grow for the request of which it has a part."""

    def evict(self, reason: str) -> None:
        """Close without sending anything more."""


class Memory:
    """Make it within a running event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._holders: dict[Member, None] = {}
        # Members that may grow until their requests are complete.
        self._growing: dict[Member, None] = {}
        # Members whose buffers are full, in their order.
        self._line: dict[Member, None] = {}
        # Members that waited in the line, and are not resumed yet.
        self._resuming: deque[Member] = deque()
        # The check of now: members that it has not looked at, and slow ones with their rates.
        self._unchecked: deque[Member] = deque()
        self._slow: dict[Member, float] = {}
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
        if full and not self._growing:
            self._growing[member] = None
        elif full:
            self._line.setdefault(member)
            return False
        self._line.pop(member, None)
        return True

    def growth_limit(self, member: Member) -> int:
        """Return the size to which the member's buffer may grow while memory is short."""
        return NO_LIMIT if member in self._growing else SHORT_READ_BYTES

    def forget(self, member: Member) -> None:
        """The member has no part of a request any more, or is not read for another reason."""
        self._line.pop(member, None)
        if member in self._growing:
            del self._growing[member]
            if self._line and not self._growing:
                next(iter(self._line)).set_reading()

    # Running short

    def _run_short(self) -> None:
        self.short = True
        self.times_short += 1
        for member in list(self._holders):
            member.trim()
        if self.short:
            self._set_reading()
            if self._check_timer is None:
                # Not now: the caller is in the middle of a connection's callback.
                self._check_timer = self._loop.call_soon(self._check)

    def _relieve(self) -> None:
        self.short = False
        self._growing.clear()
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
        """While memory is short, close slow members, and let others grow. Some members are looked
        at, and some closed, in one turn of the event loop."""
        self._unchecked = deque(self._holders)
        self._slow = {}
        self._check_next()

    def _check_next(self) -> None:
        self._check_timer = None
        if not self.short:
            return
        now = self._loop.time()
        for _ in range(min(len(self._unchecked), CHECKED_MEMBERS_A_TURN)):
            member = self._unchecked.popleft()
            rate = member.rate(now) if member in self._holders else inf
            if rate < MIN_FRAME_BYTES_PER_S:
                self._slow[member] = rate
        if self._unchecked:
            self._check_timer = self._loop.call_soon(self._check_next)
            return
        by_rate = sorted(self._slow, key=lambda member: (self._slow[member], -member.memory_held))
        self._close_slow(by_rate, 0)

    def _close_slow(self, by_rate: list[Member], start: int) -> None:
        """Close slow members from a position on, the slowest first. Then the check is complete."""
        self._check_timer = None
        if not self.short:
            return
        end = self._evict(by_rate, start)
        if end < len(by_rate) and self.short:
            self._check_timer = self._loop.call_soon(self._close_slow, by_rate, end)
        elif self.short:
            self._let_grow()
            # Looking at the members must not take more than a small share of the time.
            turns = max(1.0, len(self._holders) / CHECKED_MEMBERS_A_TURN)
            delay_s = min(MEMORY_CHECK_S * turns, MAX_MEMORY_CHECK_S)
            self._check_timer = self._loop.call_later(delay_s, self._check)

    def _let_grow(self) -> None:
        """Let the first members of the line grow instead of slow ones: one at least, and others
        whose requests fit."""
        late = [member for member in self._slow if member in self._growing]
        for member in late:
            del self._growing[member]
        room = self._limit // 4 * 5 - self.used
        room -= sum(member.missing_bytes() for member in self._growing)
        for member in list(islice(self._line, EVICTIONS_A_TURN)):
            missing = member.missing_bytes()
            if missing <= room or not self._growing:
                room -= missing
                self._growing[member] = None
                member.set_reading()
        for member in late:
            member.set_reading()

    def _evict(self, by_rate: list[Member], start: int) -> int:
        """Close members from a position on while memory is short, but not too many. Return the
        position of the next one."""
        used, before, reason, position = self.used, self.evicted, "", start
        while position < len(by_rate) and self.short and self.evicted - before < EVICTIONS_A_TURN:
            member = by_rate[position]
            position += 1
            if member.memory_held < EVICTED_BYTES:
                continue
            self.evicted += 1
            reason = (
                f"its peer is slow ({self._slow[member]:.0f} bytes/s), and memory is short. It "
                f"holds {member.memory_held} bytes"
            )
            member.evict(reason)
        now = self._loop.time()
        if reason and (self._logged_at is None or now - self._logged_at >= REFUSALS_LOGGED_S):
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
        return position
