"""One connection to one broker: requests pipelined, answers matched, versions agreed on when it
opens.

A request that is not answered in time closes the connection: answers come in order, so those behind
it would wait as well. Must never know which broker leads what, nor try anything twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from penstock.client.faults import ConnectionFailed, NotKafka, check, reason
from penstock.client.versions import choose_version, offered_by
from penstock.client.wire import FrameReader, Ledger, Waiting
from penstock.errors import ErrorCode, ProtocolError
from penstock.protocol.apis import Api, api_of, find_api
from penstock.protocol.framing import frame_request
from penstock.protocol.headers import API_VERSIONS_KEY
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.schema import Versions
from penstock.world import World

T = TypeVar("T")

SOFTWARE = ApiVersionsRequest(client_software_name="penstock", client_software_version="0.1.0")


class Connection(asyncio.Protocol):
    """Made by `open_connection`. `send` writes at once, so that the order of calls is the order on
    the wire."""

    def __init__(self, address: str, client_id: str, timeout_s: float) -> None:
        self.address = address
        # Called once, when nothing can be asked of the broker by this connection any more.
        self.on_closed: Callable[[], None] = lambda: None
        self.offered: Mapping[int, Versions] = {}
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader()
        self._ledger = Ledger()
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def closed(self) -> bool:
        return self._error is not None

    @property
    def in_flight(self) -> int:
        return len(self._ledger)

    async def call(
        self,
        request: object,
        response: type[T],
        *,
        ceiling: int | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Asks and waits for the answer. ConnectionFailed when the broker goes away or is silent
        for too long."""
        await self._writable.wait()
        return await self.send(request, response, ceiling=ceiling, timeout_s=timeout_s)

    def send(
        self,
        request: object,
        response: type[T],
        *,
        ceiling: int | None = None,
        timeout_s: float | None = None,
    ) -> asyncio.Future[T]:
        """Writes the request now; the future has its answer."""
        version = choose_version(api_of(type(request)), self.offered, ceiling)
        return self._send(
            request,
            response,
            api_of(type(request)),
            version,
            self._timeout_s if timeout_s is None else timeout_s,
        )

    def post(self, request: object, *, ceiling: int | None = None) -> None:
        """Writes a request that has no answer: a produce with acks=0."""
        self._write(
            request,
            choose_version(api_of(type(request)), self.offered, ceiling),
            self._ledger.next_id(),
        )

    async def agree(self, timeout_s: float) -> None:
        """Learns what the broker serves. A broker older than our newest ApiVersions says which one
        to ask again with."""
        api = find_api(API_VERSIONS_KEY)
        answer = await self._send(SOFTWARE, ApiVersionsResponse, api, api.versions.last, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The oldest broker to do so sends no list at all, and serves v0.
            version = choose_version(
                api, offered_by(answer.api_keys) or {API_VERSIONS_KEY: Versions(0, 0)}
            )
            answer = await self._send(SOFTWARE, ApiVersionsResponse, api, version, timeout_s)
        check(answer.error_code, f"{self.address} refuses to say which versions it serves")
        self.offered = offered_by(answer.api_keys)

    def close(self, error: Exception | None = None) -> None:
        """Ends everything under way with the error, or says that the connection was closed by
        us."""
        if self._error is None:
            self._error = error or ConnectionFailed(
                f"the connection to {self.address} was closed by this client"
            )
            self._writable.set()
            self._ledger.fail(self._error)
            self.on_closed()
        if self._transport is not None:
            self._transport.abort() if error else self._transport.close()

    def _send(
        self, request: object, response: type[T], api: Api, version: int, timeout_s: float
    ) -> asyncio.Future[T]:
        correlation_id = self._ledger.next_id()
        self._write(request, version, correlation_id)
        future: asyncio.Future[T] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._expire, api.name, timeout_s)
        self._ledger.enter(correlation_id, Waiting(api, version, response, future, timer))
        return future

    def _write(self, request: object, version: int, correlation_id: int) -> None:
        if self._error is not None or self._transport is None:
            raise self._error or ConnectionFailed(f"the connection to {self.address} is not open")
        self._transport.writelines(
            cast("list[Any]", frame_request(request, version, correlation_id, self._client_id))
        )

    def _expire(self, name: str, timeout_s: float) -> None:
        self.close(ConnectionFailed(f"{self.address} did not answer {name} within {timeout_s:g} s"))

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._ledger.answer(frame)
        except ProtocolError as error:
            self.close(
                NotKafka(f"{self.address} does not speak Kafka's protocol as it should: {error}")
            )

    def connection_lost(self, error: Exception | None) -> None:
        because = f": {reason(error)}" if isinstance(error, OSError) else ""
        self.close(ConnectionFailed(f"{self.address} closed the connection{because}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


async def open_connection(
    world: World,
    host: str,
    port: int,
    *,
    client_id: str,
    connect_timeout_s: float,
    request_timeout_s: float,
) -> Connection:
    """Connects and agrees on versions. ConnectionFailed when nobody is there, NotKafka when it is
    not a Kafka broker."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        async with asyncio.timeout(connect_timeout_s):
            _transport, protocol = await world.network.connect(
                lambda: Connection(address, client_id, request_timeout_s), host, port
            )
    except TimeoutError as error:
        raise ConnectionFailed(
            f"cannot connect to {address}: no answer within {connect_timeout_s:g} s"
        ) from error
    except OSError as error:
        raise ConnectionFailed(f"cannot connect to {address}: {reason(error)}") from error
    connection = cast(Connection, protocol)
    try:
        await connection.agree(connect_timeout_s)
    except NotKafka:
        raise
    except ConnectionFailed as error:
        hint = "is it the plaintext listener of a Kafka broker?"
        raise ConnectionFailed(
            f"{error.message} before it said which versions it serves: {hint}"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection
