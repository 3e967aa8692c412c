"""What a handler knows of a request besides its body: which one it is, from whom, and by which way
it came."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple


class ConnectionHandle:
    """The connection of a request, as far as handlers may know it: since when it is there (on the
    loop's clock), and when it is lost."""

    __slots__ = ("_told", "began")

    def __init__(self, began: float = 0.0) -> None:
        self.began = began
        self._told: dict[Hashable, Callable[[], None]] = {}

    def on_lost(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Called once. Who asks again under the same key is told in place of the first."""
        self._told[key] = callback

    def lost(self) -> None:
        told, self._told = self._told, {}
        for callback in told.values():
            callback()


class RequestContext(NamedTuple):
    """`received` is in seconds of the event loop's clock. A named tuple: it is made for every
    request, in a fifth of the time."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    listener_name: str
    local_host: str
    local_port: int
    peer: str
    received: float
    visit: ConnectionHandle
