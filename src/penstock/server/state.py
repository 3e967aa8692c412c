"""The state that the connections of a server share: limits, counters, the receive buffer and the
open connections.

Kafka's own settings come from the node's config, the other limits from `penstock.limits`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock import limits
from penstock.config import node_settings
from penstock.config.listeners import connection_overrides, listener_max_connections
from penstock.config.node import NodeConfig
from penstock.config.setting import InconsistentSettingsError, Setting
from penstock.errors import InvariantBroken
from penstock.handlers.audit_log import audit
from penstock.handlers.authentication import AuthenticationCounts
from penstock.node.delayed import ActionQueue
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.server.memory import Memory
from penstock.server.quotas import ConnectionLimits, ConnectionQuotas
from penstock.server.rare_lines import RareLines
from penstock.server.request_measures import RequestMeasures
from penstock.world import World

if TYPE_CHECKING:
    from penstock.server.connection import Connection

log = logging.getLogger(__name__)

T = TypeVar("T")


class Settings(Protocol):
    """The settings of a node: those of its file, or with the dynamic ones before them."""

    def __getitem__(self, setting: Setting[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """With `max_idle_s` None, idle connections stay open. With a socket buffer None, the operating
    system chooses its size."""

    max_request_bytes: int = 100 * 1024 * 1024
    max_idle_s: float | None = node_settings.CONNECTIONS_MAX_IDLE_MS.default_value() / 1000
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_inflight_requests: int = limits.MAX_INFLIGHT_REQUESTS
    max_inflight_bytes: int = limits.MAX_INFLIGHT_BYTES
    max_node_inflight_bytes: int = limits.MAX_NODE_INFLIGHT_BYTES
    reserved_inflight_bytes: int = limits.RESERVED_INFLIGHT_BYTES
    accept_backlog: int = limits.ACCEPT_BACKLOG
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


def bounds_of(config: NodeConfig) -> Bounds:
    idle_ms = config[node_settings.CONNECTIONS_MAX_IDLE_MS]
    return Bounds(
        max_request_bytes=config[node_settings.SOCKET_REQUEST_MAX_BYTES],
        max_idle_s=idle_ms / 1000 if idle_ms >= 0 else None,
        connections=limits_at(
            config,
            ConnectionLimits(
                per_listener=listener_max_connections(config),
                reserved_listeners=config.reserved_listener_names,
            ),
        ),
        accept_backlog=_if_set(config, node_settings.SOCKET_LISTEN_BACKLOG_SIZE)
        or limits.ACCEPT_BACKLOG,
        send_buffer_bytes=_if_set(config, node_settings.SOCKET_SEND_BUFFER_BYTES),
        receive_buffer_bytes=_if_set(config, node_settings.SOCKET_RECEIVE_BUFFER_BYTES),
    )


def limits_at(settings: Settings, others: ConnectionLimits) -> ConnectionLimits:
    """Return the limits of the settings. Those of listeners are not dynamic."""
    return replace(
        others,
        total=settings[node_settings.MAX_CONNECTIONS],
        per_address=settings[node_settings.MAX_CONNECTIONS_PER_IP],
        address_overrides=connection_overrides(
            settings[node_settings.MAX_CONNECTIONS_PER_IP_OVERRIDES]
        ),
    )


def _if_set(config: NodeConfig, setting: Setting[int]) -> int | None:
    """Return a socket setting, or None if it is not set: Kafka's defaults are smaller than what
    today's operating systems choose."""
    return config[setting] if config.is_set(setting) and config[setting] > 0 else None


@dataclass(slots=True)
class Counters:
    """`connections` is the number of open ones; the others only grow."""

    connections: int = 0
    connections_opened: int = 0
    connections_idle_closed: int = 0
    connections_stalled: int = 0
    connections_broken: int = 0
    connection_pauses: int = 0
    requests: int = 0
    responses: int = 0
    handler_errors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class ServerState:
    """`waiting` counts the handlers that wait, including those of closed connections that have not
    ended yet. `settings` returns the settings of now, whose limits on connections replace those of
    the bounds. `requests` counts requests by API; None if nobody asks for metrics.
    `client_quotas` are those of users, client ids and addresses."""

    def __init__(
        self,
        world: World,
        bounds: Bounds,
        actions: ActionQueue,
        settings: Callable[[], Settings] | None = None,
        requests: RequestMeasures | None = None,
        client_quotas: ClientQuotas | None = None,
    ) -> None:
        self.clock = world.clock
        self.offload = world.offload
        self.bounds = bounds
        self.actions = actions
        self.counters = Counters()
        self.requests = requests
        self.watched_sockets: set[int] = set()
        self.shared_buffer = memoryview(bytearray(limits.READ_BYTES))
        self.connections: dict[Connection, None] = {}  # ordered
        self.client_quotas = ClientQuotas() if client_quotas is None else client_quotas
        self.quotas = ConnectionQuotas(
            bounds.connections, world.network.max_descriptors(), self.client_quotas.connections
        )
        self.memory = Memory(bounds.max_node_inflight_bytes)
        self.reserved_memory = Memory(bounds.reserved_inflight_bytes)
        self._settings = settings
        self._stalled_logged_at = self._refused_logged_at = -inf
        self._refusals = RareLines()
        self.authentications = AuthenticationCounts()
        self.waiting = 0
        self.stopping = False
        self.failure: InvariantBroken | None = None
        self.failed = asyncio.Event()
        # Set when the server stops and no connection and no handler is left.
        self.quiet = asyncio.Event()

    def memory_of(self, listener_name: str) -> Memory:
        """Return the memory that the connections of a listener share."""
        is_reserved = listener_name in self.bounds.connections.reserved_listeners
        return self.reserved_memory if is_reserved else self.memory

    def update_quotas(self) -> None:
        """Apply the limits on connections of the settings of now. Those that another release
        accepted, and that no server could start with, are ignored."""
        if self._settings is None:
            return
        try:
            current = limits_at(self._settings(), self.bounds.connections)
        except InconsistentSettingsError:
            current = self.bounds.connections
        if current.per_address or current.address_overrides:
            self.quotas.update(current)

    def admit(self, connection: Connection) -> bool:
        """Register a connection. Return False if there are too many, or the server stops."""
        self.update_quotas()
        if self.stopping or not self.quotas.admit(
            connection, self.clock.monotonic(), is_new=not connection.is_encrypted
        ):
            return False
        self.connections[connection] = None
        self.counters.connections = len(self.connections)
        self.counters.connections_opened += 1
        return True

    def stalled_level(self, now: float) -> int:
        """Return the log level of a connection that is closed because its peer stalls. Thousands
        may stall at the same time, and one line every some seconds suffices."""
        if now - self._stalled_logged_at < limits.REFUSALS_LOGGED_S:
            return logging.DEBUG
        self._stalled_logged_at = now
        return logging.WARNING

    def refused_level(self, now: float) -> int:
        """Return the log level of a failed authentication, as `stalled_level`."""
        if now - self._refused_logged_at < limits.REFUSALS_LOGGED_S:
            return logging.DEBUG
        self._refused_logged_at = now
        return logging.WARNING

    def audit_refusal(self, peer: str, listener_name: str, reason: str, now: float) -> None:
        """Log a failed authentication to `penstock.audit`: one line per address and reason in a
        minute. The reason has the mechanism and the user."""
        note = self._refusals.note(peer.rpartition(":")[0], reason, now)
        if note is not None:
            audit.info("connection from %s on %s: %s%s", peer, listener_name, reason, note)

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.counters.connections = len(self.connections)
            self.quotas.release(connection)
        self._check_quiet()

    def handler_done(self) -> None:
        self.waiting -= 1
        self._check_quiet()

    def _check_quiet(self) -> None:
        if self.stopping and not self.connections and not self.waiting:
            self.quiet.set()

    def stop(self) -> None:
        """Take no new requests; set `quiet` when the responses to the others have left."""
        self.stopping = True
        for connection in list(self.connections):
            connection.drain()
        self._check_quiet()

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def fail(self, error: InvariantBroken) -> None:
        """Close all connections: no response may leave after a broken invariant."""
        log.critical("an invariant is broken; the node stops", exc_info=error)
        self.stopping = True
        self.failure = self.failure or error
        self.failed.set()
        self.abort()
