"""Limits on connections (Kafka's ConnectionQuotas): of the node, of a listener and of an address.

- A node has at most max.connections, and fewer than its file descriptors: a reserve of them stays
  for files, so that connections cannot stop the logs.
- A listener has at most listener.name.<name>.max.connections.
- An address has at most max.connections.per.ip, or its value in max.connections.per.ip.overrides.
- An address opens connections at most at its rate connection_creation_rate (KIP-612), but on
  listeners of controllers or between brokers.
- These settings are dynamic, except those of listeners. If max.connections is lowered, the least
  recently used connections are closed.
- If the node is full, a listener of controllers or between brokers still takes connections. The
  least recently used connection of another listener is closed for each, an idle one first.

Other connections beyond a limit are closed when they are accepted. Kafka leaves them in the
kernel's queue until there is room in the node or listener; an event loop cannot stop to accept from
one listener without a race, and a client that is refused tries another broker.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.limits import EVICTIONS_A_TURN, REFUSALS_LOGGED_S, RESERVED_DESCRIPTORS
from penstock.security.quotas.client_quotas import ConnectionRates
from penstock.security.quotas.rates import Windows

log = logging.getLogger(__name__)

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`reserved_listeners` are those of controllers and between brokers."""

    total: int = UNLIMITED
    per_address: int = UNLIMITED
    address_overrides: Mapping[str, int] = field(default_factory=dict)
    per_listener: Mapping[str, int] = field(default_factory=dict)
    reserved_listeners: frozenset[str] = frozenset()


class Member(Protocol):
    """A connection."""

    listener_name: str
    address: str

    @property
    def is_idle(self) -> bool: ...

    @property
    def last_active(self) -> float: ...

    def evict(self, reason: str) -> None: ...


def connections_below(max_descriptors: int | None) -> int:
    """Return how many connections leave enough descriptors for files."""
    if max_descriptors is None:
        return UNLIMITED
    return max_descriptors - min(RESERVED_DESCRIPTORS, max_descriptors // 2)


class ConnectionQuotas:
    def __init__(
        self,
        limits: ConnectionLimits,
        max_descriptors: int | None,
        rates: ConnectionRates | None = None,
    ) -> None:
        self._rates = ConnectionRates(Windows()) if rates is None else rates
        self._by_descriptors = connections_below(max_descriptors)
        self.update(limits)
        self._members: dict[Member, None] = {}
        self._listeners: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()
        self._logged_at: float | None = None
        self.refused = 0

    @property
    def by_listener(self) -> dict[str, int]:
        """The number of connections by listener."""
        return dict(self._listeners)

    def update(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._total = min(limits.total, self._by_descriptors)

    def close_excess(self, now: float) -> None:
        """Close connections beyond the limit of the node, which may have been lowered."""
        excess = min(len(self._members) - self._total, EVICTIONS_A_TURN)
        if excess > 0:
            self._close_unreserved(
                excess, now, "it was used least recently, and there are too many"
            )

    def admit(self, member: Member, now: float, *, is_new: bool = True) -> bool:
        """Count a connection, or return False if there are too many. Refusals are logged from time
        to time. One whose handshake was admitted before is not new, and is not counted again for
        the rate of its address."""
        reason = self._refusal(member)
        if reason is None and is_new and self._rates.is_set:
            reason = self._too_fast(member, now)
        if reason is not None:
            self.refused += 1
            self._log(now, "refused a connection from %s on %s: %s", member, reason)
            return False
        if len(self._members) >= self._total:
            self._close_unreserved(
                1, now, "it was used least recently, and brokers or controllers need a connection"
            )
        self._members[member] = None
        self._listeners[member.listener_name] += 1
        self._addresses[member.address] += 1
        return True

    def release(self, member: Member) -> None:
        if member not in self._members:
            return
        del self._members[member]
        for counts, key in (
            (self._listeners, member.listener_name),
            (self._addresses, member.address),
        ):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def _refusal(self, member: Member) -> str | None:
        limits, name, address = self._limits, member.listener_name, member.address
        most = limits.address_overrides.get(address, limits.per_address)
        if self._addresses[address] >= most:
            return f"the address has {most} connections (max.connections.per.ip)"
        most = limits.per_listener.get(name, UNLIMITED)
        if self._listeners[name] >= most:
            return f"the listener has {most} (listener.name.{name.lower()}.max.connections)"
        if len(self._members) < self._total:
            return None
        if name in limits.reserved_listeners and self._has_unreserved:
            return None
        if self._total == limits.total:
            return f"the node has {self._total} (max.connections)"
        return (
            f"the node has {self._total}, and keeps other descriptors for files (RLIMIT_NOFILE, "
            "ulimit -n)"
        )

    def _too_fast(self, member: Member, now: float) -> str | None:
        if member.listener_name in self._limits.reserved_listeners:
            return None
        if not self._rates.admit(member.address, int(now * 1000)):
            return None
        return "the address opens connections too fast (quota connection_creation_rate)"

    @property
    def _has_unreserved(self) -> bool:
        return any(name not in self._limits.reserved_listeners for name in self._listeners)

    def _close_unreserved(self, count: int, now: float, reason: str) -> None:
        """Close connections of listeners that are not reserved, after one look at all of them."""
        unreserved = (
            member
            for member in self._members
            if member.listener_name not in self._limits.reserved_listeners
        )
        for victim in heapq.nsmallest(
            count, unreserved, key=lambda member: (not member.is_idle, member.last_active)
        ):
            self._log(now, "closed a connection from %s on %s: %s", victim, reason)
            # It counts no more, although its end is reported later.
            self.release(victim)
            victim.evict(reason)

    def _log(self, now: float, line: str, member: Member, reason: str) -> None:
        if self._logged_at is None or now - self._logged_at >= REFUSALS_LOGGED_S:
            self._logged_at = now
            log.warning(
                f"{line}. %d connections are open, %d were refused since the start",
                member.address,
                member.listener_name,
                reason,
                len(self._members),
                self.refused,
            )
