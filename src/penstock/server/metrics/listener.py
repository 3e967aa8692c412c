"""The HTTP listener of a node's metrics: GET /metrics, and nothing else.

It is bounded in everything that a peer decides on: connections, the size of a request, the time
until it is complete, the scrapes that run at the same time, and the time that a peer takes to read
its page. Prometheus sends its request at once. So a new connection takes the place of one that has
not sent its request, and silent connections do not keep a scrape out. One request per connection:
the response closes it. A scrape shares the event loop with the node, and pauses every
SCRAPE_TURN_S.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from penstock.config.metrics_settings import (
    METRICS_MAX_TOPICS,
    METRICS_PER_PARTITION,
    METRICS_TOKEN,
)
from penstock.config.node import NodeConfig
from penstock.config.quorum import Address
from penstock.limits import (
    ACCEPT_BACKLOG,
    MAX_SCRAPE_CONNECTIONS,
    MAX_SCRAPE_REQUEST_BYTES,
    MAX_SCRAPES,
    SCRAPE_HEAD_S,
    SCRAPE_SEND_S,
)
from penstock.metrics.catalogue import server as names
from penstock.metrics.samples import CONTENT_TYPE, Samples, Source, page
from penstock.metrics.turn import Turn
from penstock.world import Listener, World

if TYPE_CHECKING:
    import ssl

    from penstock.server.metrics.handshakes import Handshakes

log = logging.getLogger(__name__)

_PATHS = ("/", "/metrics")
_HEAD_END = b"\r\n\r\n"


class MetricsListener:
    """`start` it. `sources` add the samples of each page, one after the other. `on_stop` releases
    what they hold. With `tls`, which returns the context of a new connection, it speaks https."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        address: Address,
        sources: Sequence[Source],
        on_stop: Callable[[], None] = lambda: None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._world = world
        self._address = address
        self._sources = sources
        self._on_stop = on_stop
        self._token = config[METRICS_TOKEN]
        self._per_partition = config[METRICS_PER_PARTITION]
        self._max_series = config[METRICS_MAX_TOPICS]
        self._listener: Listener | None = None
        self._tls = tls
        self._handshakes: Handshakes | None = None
        # In the order in which they were accepted; a dict for its order.
        self._connections: dict[_Connection, None] = {}
        # Connections whose page is being collected or sent.
        self._scraping: set[_Connection] = set()
        self._served = 0
        # Pages are collected one after the other, so that together they take one turn at a time.
        self._collecting = asyncio.Lock()

    @property
    def port(self) -> int:
        """The bound port; 0 if the listener is not started."""
        return 0 if self._listener is None else self._listener.port

    async def start(self) -> None:
        """Raises OSError, with advice, if the address cannot be bound."""
        address = self._address
        try:
            self._listener = await self._listen(address)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot serve metrics on {address}: {error.strerror or error}. Choose another "
                "address in penstock.metrics.listener, or leave it empty",
            ) from error
        if self._token is None and address.host not in ("127.0.0.1", "localhost", "::1"):
            log.warning(
                "metrics are served on %s without a token: everybody who reaches it can read the "
                "names of topics and groups. Set penstock.metrics.token",
                address,
            )

    async def _listen(self, address: Address) -> Listener:
        if self._tls is None:
            return await self._world.network.listen(
                lambda: _Connection(self), address.host, address.port
            )
        # Imported on first use, so that a node without TLS starts quickly.
        from penstock.server.metrics.handshakes import Handshakes
        from penstock.server.tls import listener as tls_listener

        self._handshakes = Handshakes(self._tls, lambda: _Connection(self))
        return await tls_listener.listen(
            self._handshakes.arrive, address.host, address.port, ACCEPT_BACKLOG, accepting=True
        )

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._handshakes is not None:
            self._handshakes.stop()
        for connection in list(self._connections):
            connection.abort()
        self._on_stop()

    # Connections

    def admit(self, connection: _Connection) -> bool:
        """Return False if there is no place: all connections are being answered."""
        if len(self._connections) >= MAX_SCRAPE_CONNECTIONS:
            silent = self._silent(connection.address)
            if silent is None:
                return False
            self.forget(silent)
            silent.abort()
        self._connections[connection] = None
        return True

    def _silent(self, new: str) -> _Connection | None:
        """Return the connection that gives its place to one from a new address: the oldest without
        a request, of the address that has the most of them."""
        silent = [connection for connection in self._connections if not connection.has_request]
        if not silent:
            return None
        counts = Counter(connection.address for connection in silent)
        counts[new] += 1
        return max(silent, key=lambda connection: counts[connection.address])

    def forget(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        self._scraping.discard(connection)

    # Requests

    def is_allowed(self, authorization: str) -> bool:
        """Compare the token in constant time."""
        if self._token is None:
            return True
        scheme, _space, given = authorization.partition(" ")
        expected = self._token.encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(errors="replace"), expected
        )

    def begin_scrape(self, connection: _Connection) -> bool:
        """Return False if too many pages are being collected or sent."""
        if len(self._scraping) >= MAX_SCRAPES:
            return False
        self._scraping.add(connection)
        return True

    async def scrape(self, query: str) -> bytes:
        """Return a page. `query` may ask for the series of partitions."""
        wanted = dict(pair.partition("=")[::2] for pair in query.split("&")).get("partitions")
        per_partition = self._per_partition if wanted is None else wanted not in ("0", "false")
        async with self._collecting:
            return await self.collect(per_partition=per_partition)

    async def collect(self, *, per_partition: bool) -> bytes:
        samples = Samples(per_partition=per_partition, max_series=self._max_series)
        turn = Turn(self._world.clock)
        for source in self._sources:
            await source(samples, turn)
            await turn.pause()
        self._served += 1
        samples.add(names.SCRAPES, self._served)
        samples.add(names.DROPPED_NAMES, samples.dropped)
        samples.add(names.SCRAPE_TURNS, turn.count)
        return await page(samples, turn)


class _Connection(asyncio.Protocol):
    """One request, one response."""

    _transport: asyncio.Transport

    def __init__(self, listener: MetricsListener) -> None:
        self._listener = listener
        self._head = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        # Whether the head of the request is complete.
        self.has_request = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._listener.admit(self):
            self._transport.abort()
            return
        self._set_deadline(SCRAPE_HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._listener.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def eof_received(self) -> bool:
        """Close: a scraper that gives up must not keep its scrape running."""
        return False

    def data_received(self, data: bytes) -> None:
        if self._task is not None or self._transport.is_closing():
            return  # the rest of a request that is answered already
        self._head += data[: MAX_SCRAPE_REQUEST_BYTES + 1 - len(self._head)]
        end = self._head.find(_HEAD_END)
        if end < 0:
            if len(self._head) > MAX_SCRAPE_REQUEST_BYTES:
                self._respond(431, "the request is too large")
            return
        self.has_request = True
        self._handle(bytes(self._head[:end]).decode("latin-1"))

    def _handle(self, head: str) -> None:
        request_line, *lines = head.split("\r\n")
        parts = request_line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            self._respond(400, "this is not an HTTP/1.1 request")
            return
        method, target, _version = parts
        path, _mark, query = target.partition("?")
        headers = {
            name.strip().lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon
        }
        if not self._listener.is_allowed(headers.get("authorization", "")):
            self._respond(401, "a bearer token is required", "WWW-Authenticate: Bearer\r\n")
        elif path not in _PATHS:
            self._respond(404, "metrics are at /metrics")
        elif method not in ("GET", "HEAD"):
            self._respond(405, "use GET", "Allow: GET, HEAD\r\n")
        elif not self._listener.begin_scrape(self):
            self._respond(503, "too many scrapes at the same time", "Retry-After: 1\r\n")
        else:
            self._set_deadline(SCRAPE_SEND_S)
            self._task = asyncio.get_running_loop().create_task(
                self._answer(query, has_body=method == "GET")
            )

    async def _answer(self, query: str, *, has_body: bool) -> None:
        try:
            text = await self._listener.scrape(query)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("cannot collect the metrics")
            self._respond(500, "the metrics cannot be collected; the node's log has the reason")
            return
        self._send(200, CONTENT_TYPE, text, has_body=has_body)

    def _respond(self, status: int, reason: str, headers: str = "") -> None:
        self._send(status, "text/plain; charset=utf-8", f"{reason}\n".encode(), headers)

    def _send(
        self,
        status: int,
        content_type: str,
        body: bytes,
        headers: str = "",
        *,
        has_body: bool = True,
    ) -> None:
        if self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n{headers}Connection: close\r\n\r\n"
        )
        self._set_deadline(SCRAPE_SEND_S)
        self._transport.write(head.encode("ascii") + (body if has_body else b""))
        self._transport.close()  # after the buffer has left

    def _set_deadline(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.abort)


_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
