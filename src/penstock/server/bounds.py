"""What a server allows its connections, and what it counts. Plain values: it must never know a
connection.

Kafka's own settings come from the node's config, the rest from `penstock.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock import limits
from penstock.config import node_settings
from penstock.config.node import NodeConfig
from penstock.config.setting import Setting


@dataclass(frozen=True, slots=True)
class Bounds:
    """`max_idle_s` None: idle connections stay. Socket buffers None: as the operating system finds
    best."""

    max_request_bytes: int = 100 * 1024 * 1024
    max_idle_s: float | None = node_settings.CONNECTIONS_MAX_IDLE_MS.default_value() / 1000
    max_connections: int = node_settings.MAX_CONNECTIONS.default_value()
    max_inflight_requests: int = limits.MAX_INFLIGHT_REQUESTS
    max_inflight_bytes: int = limits.MAX_INFLIGHT_BYTES
    max_node_inflight_bytes: int = limits.MAX_NODE_INFLIGHT_BYTES
    accept_backlog: int = limits.ACCEPT_BACKLOG
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


def bounds_of(config: NodeConfig) -> Bounds:
    idle_ms = config[node_settings.CONNECTIONS_MAX_IDLE_MS]
    return Bounds(
        max_request_bytes=config[node_settings.SOCKET_REQUEST_MAX_BYTES],
        max_idle_s=idle_ms / 1000 if idle_ms >= 0 else None,
        max_connections=config[node_settings.MAX_CONNECTIONS],
        accept_backlog=_if_set(config, node_settings.SOCKET_LISTEN_BACKLOG_SIZE)
        or limits.ACCEPT_BACKLOG,
        send_buffer_bytes=_if_set(config, node_settings.SOCKET_SEND_BUFFER_BYTES),
        receive_buffer_bytes=_if_set(config, node_settings.SOCKET_RECEIVE_BUFFER_BYTES),
    )


def _if_set(config: NodeConfig, setting: Setting[int]) -> int | None:
    """Kafka's defaults for sockets are those of 2011, and smaller than what operating systems find
    out by themselves."""
    return config[setting] if config.is_set(setting) and config[setting] > 0 else None


@dataclass(slots=True)
class Counters:
    """Only ever counted up, but for the connections open now."""

    connections: int = 0
    connections_opened: int = 0
    connections_refused: int = 0
    connections_idle_closed: int = 0
    connections_broken: int = 0
    requests: int = 0
    responses: int = 0
    handler_errors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
