"""Which log lines about refused peers are left out: thousands may be refused in a second.

Each pair of address and reason is logged once in HANDSHAKE_LOGGED_S, and at most
HANDSHAKE_LINES_PER_S lines in a second, whatever the addresses.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.limits import HANDSHAKE_LINES_PER_S, HANDSHAKE_LOGGED_S, MAX_LOGGED_HANDSHAKES


class RareLines:
    def __init__(self) -> None:
        # When a pair of address and reason was logged, the oldest first.
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._second = -1
        self._lines = 0
        self._omitted = 0

    def note(self, address: str, reason: str, now: float) -> str | None:
        """Return what the line of a refusal ends with: how many others were left out before it.
        None if it is left out itself."""
        key = address, reason
        while self._logged and now - next(iter(self._logged.values())) >= HANDSHAKE_LOGGED_S:
            self._logged.popitem(last=False)
        if int(now) != self._second:
            self._second, self._lines = int(now), 0
        if key in self._logged or self._lines >= HANDSHAKE_LINES_PER_S:
            self._omitted += 1
            return None
        self._lines += 1
        self._logged[key] = now
        if len(self._logged) > MAX_LOGGED_HANDSHAKES:
            self._logged.popitem(last=False)
        omitted, self._omitted = self._omitted, 0
        return f". {omitted} other failures were not logged" if omitted else ""
