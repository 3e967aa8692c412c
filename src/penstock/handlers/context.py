"""What a handler knows of a request besides its body: which one it is, from whom, and by which way it came."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple


class Departure:
    """Tells when the connection of a request is lost. Who asks again under the same key is told in place of the first."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[Hashable, Callable[[], None]] = {}

    def tell(self, key: Hashable, callback: Callable[[], None]) -> None:
        self._told[key] = callback

    def happened(self) -> None:
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
    departure: Departure
