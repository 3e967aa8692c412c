"""What a handler is told of a request beside its message. Owns that alone: it must never know
connections or transports."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.handlers.context import ConnectionHandle


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the requests of a connection come from: the listener, the address at which the client
    reached us, and its own."""

    listener_name: str
    local_host: str
    local_port: int
    peer: str
    visit: ConnectionHandle
