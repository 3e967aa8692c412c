"""A follower's connection to a leader. Responses are views of one reused buffer, so that records go
from the socket buffer to the log without a copy.

Owns the bytes and matches responses to requests. Does not know what a fetch is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.client.connection import API_VERSIONS_REQUEST, broker_versions, choose_version
from penstock.client.errors import ConnectionFailed, check, reason
from penstock.errors import ProtocolError
from penstock.limits import MAX_RESPONSE_BYTES, READ_BYTES
from penstock.protocol.apis import api_of
from penstock.protocol.codec import decode
from penstock.protocol.framing import SIZE_BYTES, frame_request, frame_size
from penstock.protocol.headers import decode_response_header
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.world import World

T = TypeVar("T")

# The first version with a flexible body. Every broker that accepts a follower's broker epoch serves
# it.
_API_VERSIONS_VERSION = 3
# Correlation id and an empty list of tagged fields, at most.
_HEADER_BYTES = 16

Callback = Callable[[Any], None]


class FetchConnection(asyncio.BufferedProtocol):
    """`open_connection` makes it. Between `pause` and `resume` nothing is read, and the records of
    the last response stay valid."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self.lost: asyncio.Future[ConnectionFailed] = asyncio.get_running_loop().create_future()
        self.last_response = asyncio.get_running_loop().time()
        # How long the last response took since its request, or since the response before it.
        self.last_wait_s = 0.0
        self._waiting_since = self.last_response
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(READ_BYTES))
        self._start = self._end = 0
        self._last_size = 0
        self._paused = False
        self._next_id = 0
        self._requests: deque[tuple[int, int, int, type, Callback]] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    def send(
        self, request: object, version: int, response: type[T], callback: Callable[[T], None]
    ) -> None:
        """Write a request. The callback gets its response; responses come in the order of the
        requests."""
        if self._transport is None or self.lost.done():
            return
        if not self._requests:
            self._waiting_since = asyncio.get_running_loop().time()
        api_key = api_of(type(request)).key
        self._requests.append((self._next_id, api_key, version, response, callback))
        self._transport.write(
            b"".join(
                cast("list[bytes]", frame_request(request, version, self._next_id, self._client_id))
            )
        )
        self._next_id = (self._next_id + 1) % 2**31

    def pause(self) -> None:
        """Keep the current response valid after the callback returns."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._paused:
            return
        self._paused = False
        self._process_frames()
        if not self._paused and self._transport is not None and not self.lost.done():
            self._transport.resume_reading()

    def close(self, message: str = "") -> None:
        if not self.lost.done():
            self.lost.set_result(
                ConnectionFailed(message or f"this broker closed the connection to {self.address}")
            )
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        detail = f": {reason(error)}" if isinstance(error, OSError) else ""
        self.close(f"{self.address} closed the connection{detail}")

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._end == len(self._view):
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if not self._paused:
            self._process_frames()

    def _process_frames(self) -> None:
        try:
            while (
                not self._paused
                and not self.lost.done()
                and (frame := self._next_frame()) is not None
            ):
                self._process(frame)
        except ProtocolError as error:
            self.close(f"{self.address} violated the Kafka protocol: {error}")
        if self._start == self._end and not self._paused:
            self._start = self._end = 0
            if len(self._view) > READ_BYTES >= self._last_size:
                self._view = memoryview(bytearray(READ_BYTES))

    def _next_frame(self) -> memoryview | None:
        start = self._start + SIZE_BYTES
        if start > self._end:
            return None
        stop = start + frame_size(self._view, self._start, MAX_RESPONSE_BYTES)
        if stop > self._end:
            return None
        self._start, self._last_size = stop, stop - start
        return self._view[start:stop]

    def _process(self, frame: memoryview) -> None:
        if not self._requests:
            raise ProtocolError("received a response without a request")
        correlation_id, api_key, version, response, callback = self._requests.popleft()
        header, at = decode_response_header(api_key, version, frame[:_HEADER_BYTES])
        if header.correlation_id != correlation_id:
            raise ProtocolError(
                f"received the response to request {header.correlation_id}, expected "
                f"{correlation_id}"
            )
        now = asyncio.get_running_loop().time()
        self.last_wait_s = now - max(self._waiting_since, self.last_response)
        self.last_response = now
        callback(decode(response, version, frame[at:]))

    def _make_room(self) -> None:
        """Move an incomplete frame to the front of the buffer, or of a larger one. The buffer grows
        to at most twice the bytes received, whatever size the frame claims."""
        received = self._end - self._start
        needed = (
            SIZE_BYTES + frame_size(self._view, self._start, MAX_RESPONSE_BYTES)
            if received >= SIZE_BYTES
            else READ_BYTES
        )
        grown = memoryview(bytearray(max(READ_BYTES, min(needed, 2 * received))))
        grown[:received] = self._view[self._start : self._end]
        self._view, self._start, self._end = grown, 0, received


async def open_connection(
    world: World, host: str, port: int, client_id: str, timeout_s: float, api: type
) -> tuple[FetchConnection, int]:
    """Return a connection, and the version of the API to use on it. Raises ConnectionFailed."""
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            _transport, protocol = await world.network.connect(
                lambda: FetchConnection(address, client_id), host, port
            )
            connection = cast(FetchConnection, protocol)
            return connection, await _negotiate_version(connection, api)
    except TimeoutError as error:
        raise ConnectionFailed(
            f"cannot connect to {address}: no response within {timeout_s:g} s"
        ) from error
    except OSError as error:
        raise ConnectionFailed(f"cannot connect to {address}: {reason(error)}") from error


async def _negotiate_version(connection: FetchConnection, api: type) -> int:
    received: asyncio.Future[ApiVersionsResponse] = asyncio.get_running_loop().create_future()
    connection.send(
        API_VERSIONS_REQUEST,
        _API_VERSIONS_VERSION,
        ApiVersionsResponse,
        lambda response: None if received.done() else received.set_result(response),
    )
    try:
        both: list[asyncio.Future[Any]] = [received, connection.lost]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not received.done():
            raise connection.lost.result()
        check(received.result().error_code, f"{connection.address} refused ApiVersions")
        return choose_version(api_of(api), broker_versions(received.result().api_keys))
    except BaseException:
        connection.close()
        raise
