"""What a handler knows of a request besides its body: which one it is, from whom, and by which way it came."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestContext:
    """`received` is in seconds of the event loop's clock."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    listener_name: str
    local_host: str
    local_port: int
    peer: str
    received: float
