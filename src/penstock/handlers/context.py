"""What a handler knows of a request besides its body: which one it is, from whom, and by which way it came."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple


class Visit:
    """The connection of a request, as far as handlers may know it: what was asked on it before, and when it is lost."""

    __slots__ = ("_asked", "_told")

    def __init__(self) -> None:
        self._asked: set[Hashable] = set()
        self._told: dict[Hashable, Callable[[], None]] = {}

    def is_first(self, key: Hashable) -> bool:
        """Whether this is asked for the first time on this connection."""
        first = key not in self._asked
        self._asked.add(key)
        return first

    def on_lost(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Called once. Who asks again under the same key is told in place of the first."""
        self._told[key] = callback

    def lost(self) -> None:
        told, self._told = self._told, {}
        for callback in told.values():
            callback()


class RequestContext(NamedTuple):
    """`received` is in seconds of the event loop's clock. A named tuple: it is made for every request, in a fifth of the time."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    listener_name: str
    local_host: str
    local_port: int
    peer: str
    received: float
    visit: Visit
