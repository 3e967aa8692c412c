"""The listeners of a node and the life of its connections.

server = Server(world, config, Dispatch(parts, SERVED, load))
await server.start()
... await server.wait_failed() in a task: it raises the error that stops the node ...
await server.stop()
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from penstock.config import node_settings
from penstock.config.listeners import Listener as ListenerConfig
from penstock.config.node import NodeConfig
from penstock.errors import InvariantBroken
from penstock.limits import CHECKS_A_TURN, SWEEP_INTERVAL_S, TURN_S
from penstock.node.delayed import ActionQueue
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.security.tls.node import TlsListenerConfig
from penstock.server.connection import Connection
from penstock.server.dispatch import Dispatch, Dispatching
from penstock.server.loop_delay import LoopDelay
from penstock.server.request_measures import RequestMeasures
from penstock.server.state import Bounds, Counters, ServerState, Settings, bounds_of
from penstock.server.tls import listener as tls_listener
from penstock.server.tls.handshakes import Arrival, Handshakes
from penstock.server.tls.opening import TlsOpening
from penstock.world import Listener, World

if TYPE_CHECKING:
    from penstock.server.jwks import Jwks
    from penstock.server.sasl import SaslListener, ScramLogins

log = logging.getLogger(__name__)

# How long pending responses may take to leave when a server stops: longer than a fetch usually
# waits (fetch.max.wait.ms is 500).
STOP_WITHIN_S = 5.0


class Server:
    """Make it within a running event loop. `bounds` default to those of the config. `actions` is
    the queue of the node whose handlers are served, `settings` returns its dynamic settings.
    `tls` has the listeners with TLS, `logins` has the SCRAM credentials, `quotas` are those of
    clients. Raises
    KafkaError INVALID_CONFIG for a SASL login that cannot be parsed."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        dispatch: Dispatch,
        bounds: Bounds | None = None,
        *,
        controllers: Dispatch | None = None,
        actions: ActionQueue | None = None,
        settings: Callable[[], Settings] | None = None,
        logins: ScramLogins | None = None,
        tls: Mapping[str, TlsListenerConfig] | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._world = world
        self._state = ServerState(
            world,
            bounds_of(config) if bounds is None else bounds,
            ActionQueue(world.clock) if actions is None else actions,
            settings,
            None if config.metrics_listener is None else RequestMeasures(world.clock),
            quotas,
        )
        self._config = config
        self._dispatch: dict[str, Dispatching] = dict.fromkeys(
            (listener.name for listener in config.broker_listeners), dispatch
        )
        self._dispatch |= dict.fromkeys(
            (listener.name for listener in config.controller_listeners), controllers or dispatch
        )
        self._sasl: dict[str, SaslListener] = {}
        for listener in config.listeners:
            if not listener.security_protocol.is_sasl:
                continue
            if logins is None:
                raise InvariantBroken(
                    f"listener {listener.name} uses SASL, but there are no logins"
                )
            # Imported on first use, so that a node without SASL starts quickly.
            from penstock.server.sasl import SaslDispatch, SaslListener

            self._sasl[listener.name] = SaslListener(
                listener,
                config,
                world,
                settings or (lambda: config),
                logins,
                self._state.authentications,
            )
            is_controller = listener.name in config.controller_listener_names
            inner = (controllers or dispatch) if is_controller else dispatch
            self._dispatch[listener.name] = SaslDispatch(inner)
        self._tls = {} if tls is None else dict(tls)
        # Clients cannot take the places of controllers and brokers.
        self.handshakes = Handshakes(self._state)
        self.reserved_handshakes = Handshakes(self._state)
        self._listeners: dict[str, Listener] = {}
        self.loop_delay = LoopDelay(world.clock)
        self._sweep_timer: asyncio.Handle | None = None

    @property
    def key_sets(self) -> tuple[Jwks, ...]:
        """The keys of OAUTHBEARER tokens, which must be followed."""
        return tuple(sasl.jwks for sasl in self._sasl.values() if sasl.jwks is not None)

    @property
    def ports(self) -> dict[str, int]:
        """The ports by listener name; of a listener with port 0, the one that it got."""
        return {name: listener.port for name, listener in self._listeners.items()}

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def tls(self) -> Mapping[str, TlsListenerConfig]:
        """The listeners with TLS, for metrics."""
        return self._tls

    @property
    def state(self) -> ServerState:
        """What the connections share, for metrics."""
        return self._state

    async def start(self) -> None:
        """Bind the ports of all listeners, or of none and raise an OSError that names the listener.
        Controller listeners accept connections, the others after `accept_clients`."""
        try:
            for listener in self._config.listeners:
                self._listeners[listener.name] = await self._listen(listener)
        except BaseException:
            self._close_listeners()
            raise
        self._log_wildcards()
        self.loop_delay.start()
        self._sweep()

    async def _listen(self, listener: ListenerConfig) -> Listener:
        name = listener.name
        factory = partial(Connection, self._state, self._dispatch[name], name, self._sasl.get(name))
        accepting = listener in self._config.controller_listeners
        backlog = self._state.bounds.accept_backlog
        try:
            if listener.security_protocol.is_tls:
                arrive = self._arrive_tls(name, factory)
                return await tls_listener.listen(
                    arrive, listener.host or "", listener.port, backlog, accepting=accepting
                )
            return await self._world.network.listen(
                factory, listener.host or "", listener.port, backlog, accepting=accepting
            )
        except OSError as error:
            raise OSError(
                error.errno,
                (
                    f"cannot listen on {listener}: {error.strerror or error}. Is another broker "
                    "running?"
                ),
            ) from error

    def _arrive_tls(self, name: str, factory: Callable[..., Connection]) -> tls_listener.Arrive:
        """Return the function that takes the accepted sockets of a TLS listener."""
        config = self._tls[name]
        is_reserved = name in self._state.bounds.connections.reserved_listeners
        handshakes = self.reserved_handshakes if is_reserved else self.handshakes

        def make_protocol(arrival: Arrival) -> Connection:
            return factory(tls=TlsOpening(arrival, config))

        def arrive(accepted: socket.socket, address: str) -> None:
            handshakes.arrive(accepted, address, name, config.contexts.context, make_protocol)

        return arrive

    async def accept_clients(self) -> None:
        """Accept connections on the broker listeners. Before, the kernel refuses them, as if no
        node was running."""
        for listener in self._config.broker_listeners:
            await self._listeners[listener.name].accept()

    async def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """Take no new connections or requests, send the pending responses, then close; abort what
        takes longer."""
        self._close_listeners()
        self._state.stop()
        await self.handshakes.stop()
        await self.reserved_handshakes.stop()
        try:
            await asyncio.wait_for(self._state.quiet.wait(), within_s)
        except TimeoutError:
            log.warning(
                "aborted %d connections: they did not end within %g s",
                len(self._state.connections),
                within_s,
            )
        self._state.abort()
        await self._state.quiet.wait()
        self.loop_delay.stop()
        log.info("loop delay since the start: %s", self.loop_delay)

    async def wait_failed(self) -> NoReturn:
        """Wait for a broken invariant in a handler, and raise it."""
        await self._state.failed.wait()
        raise self._state.failure or InvariantBroken("the server failed without a reason")

    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    def _log_wildcards(self) -> None:
        if self._config[node_settings.ADVERTISED_LISTENERS] is not None:
            return
        for listener in self._config.broker_listeners:
            if listener.host in (None, "::"):
                log.info(
                    "%s listens on every address, and advertised.listeners is not set: metadata "
                    "has the address by which each client reached this node. This suits containers "
                    "and machines with several addresses. Clients behind a port forward or NAT "
                    "need advertised.listeners with the host and port that they use",
                    listener,
                )

    def _sweep(self) -> None:
        self._state.update_quotas()
        now = self._world.clock.monotonic()
        self._state.quotas.close_excess(now)
        self._state.client_quotas.expire(int(now * 1000))
        self._sweep_next(list(self._state.connections))

    def _sweep_next(self, connections: list[Connection]) -> None:
        """Check the first of these connections, and the others in the next turns of the event
        loop."""
        loop, idle = asyncio.get_running_loop(), self._state.bounds.max_idle_s
        monotonic = self._world.clock.monotonic
        turn_end, count = monotonic() + TURN_S, 0
        for connection in connections[:CHECKS_A_TURN]:
            connection.check(loop.time())
            count += 1
            if monotonic() >= turn_end:
                break
        del connections[:count]
        if connections:
            self._sweep_timer = loop.call_soon(self._sweep_next, connections)
            return
        interval = SWEEP_INTERVAL_S if idle is None else max(0.01, min(SWEEP_INTERVAL_S, idle / 4))
        self._sweep_timer = loop.call_later(interval, self._sweep)
