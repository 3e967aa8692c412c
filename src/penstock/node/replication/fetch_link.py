"""A follower's connection to a leader: answers are windows into one buffer that is used again, so
that records go from it to the log.

Owns the bytes and the matching of answers to requests. Must never know what a fetch means.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.client.connection import SOFTWARE
from penstock.client.faults import ConnectionFailed, check, reason
from penstock.client.versions import choose_version, offered_by
from penstock.errors import ProtocolError
from penstock.limits import MAX_RESPONSE_BYTES, READ_BYTES
from penstock.protocol.apis import api_of
from penstock.protocol.codec import decode
from penstock.protocol.framing import SIZE_BYTES, frame_request, frame_size
from penstock.protocol.headers import decode_response_header
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.world import World

T = TypeVar("T")

# Version 3 is the first with a flexible body, which every broker that takes a follower's epoch
# knows.
_API_VERSIONS_VERSION = 3
# Correlation id and an empty list of tagged fields, at most.
_HEADER_BYTES = 16

Taker = Callable[[Any], None]


class FetchLink(asyncio.BufferedProtocol):
    """Made by `open_link`. While an answer is held (`hold`), nothing is read, and its records stay
    good; then `go_on`."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self.lost: asyncio.Future[ConnectionFailed] = asyncio.get_running_loop().create_future()
        self.last_answer = asyncio.get_running_loop().time()
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(READ_BYTES))
        self._start = self._end = 0
        self._last_size = 0
        self._held = False
        self._next_id = 0
        self._asked: deque[tuple[int, int, int, type, Taker]] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def ask(
        self, request: object, version: int, response: type[T], take: Callable[[T], None]
    ) -> None:
        """Writes the request now; `take` is called with its answer, in the order of the
        requests."""
        if self._transport is None or self.lost.done():
            return
        api_key = api_of(type(request)).key
        self._asked.append((self._next_id, api_key, version, response, take))
        self._transport.write(
            b"".join(
                cast("list[bytes]", frame_request(request, version, self._next_id, self._client_id))
            )
        )
        self._next_id = (self._next_id + 1) % 2**31

    def hold(self) -> None:
        """The answer is not yet done with."""
        self._held = True
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        if not self._held:
            return
        self._held = False
        self._take_frames()
        if not self._held and self._transport is not None and not self.lost.done():
            self._transport.resume_reading()

    def close(self, why: str = "") -> None:
        if not self.lost.done():
            self.lost.set_result(
                ConnectionFailed(
                    why or f"the connection to {self.address} was closed by this broker"
                )
            )
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        because = f": {reason(error)}" if isinstance(error, OSError) else ""
        self.close(f"{self.address} closed the connection{because}")

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._end == len(self._view):
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if not self._held:
            self._take_frames()

    def _take_frames(self) -> None:
        try:
            while (
                not self._held
                and not self.lost.done()
                and (frame := self._next_frame()) is not None
            ):
                self._take(frame)
        except ProtocolError as error:
            self.close(f"{self.address} does not speak Kafka's protocol as it should: {error}")
        if self._start == self._end and not self._held:
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

    def _take(self, frame: memoryview) -> None:
        if not self._asked:
            raise ProtocolError("an answer that nobody asked for")
        correlation_id, api_key, version, response, take = self._asked.popleft()
        header, at = decode_response_header(api_key, version, frame[:_HEADER_BYTES])
        if header.correlation_id != correlation_id:
            raise ProtocolError(
                f"an answer to request {header.correlation_id}, where {correlation_id} was expected"
            )
        self.last_answer = asyncio.get_running_loop().time()
        take(decode(response, version, frame[at:]))

    def _make_room(self) -> None:
        """A frame that has begun moves to the front, of a larger buffer if need be: twice what has
        come, whatever it claims to be."""
        held = self._end - self._start
        wanted = (
            SIZE_BYTES + frame_size(self._view, self._start, MAX_RESPONSE_BYTES)
            if held >= SIZE_BYTES
            else READ_BYTES
        )
        grown = memoryview(bytearray(max(READ_BYTES, min(wanted, 2 * held))))
        grown[:held] = self._view[self._start : self._end]
        self._view, self._start, self._end = grown, 0, held


async def open_link(
    world: World, host: str, port: int, client_id: str, timeout_s: float, api: type
) -> tuple[FetchLink, int]:
    """A connection, and the version of the API to speak on it. ConnectionFailed where nobody is
    there."""
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            _transport, protocol = await world.network.connect(
                lambda: FetchLink(address, client_id), host, port
            )
            link = cast(FetchLink, protocol)
            return link, await _agree(link, api)
    except TimeoutError as error:
        raise ConnectionFailed(
            f"cannot connect to {address}: no answer within {timeout_s:g} s"
        ) from error
    except OSError as error:
        raise ConnectionFailed(f"cannot connect to {address}: {reason(error)}") from error


async def _agree(link: FetchLink, api: type) -> int:
    agreed: asyncio.Future[ApiVersionsResponse] = asyncio.get_running_loop().create_future()
    link.ask(
        SOFTWARE,
        _API_VERSIONS_VERSION,
        ApiVersionsResponse,
        lambda answer: None if agreed.done() else agreed.set_result(answer),
    )
    try:
        both: list[asyncio.Future[Any]] = [agreed, link.lost]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not agreed.done():
            raise link.lost.result()
        check(agreed.result().error_code, f"{link.address} refuses to say which versions it serves")
        return choose_version(api_of(api), offered_by(agreed.result().api_keys))
    except BaseException:
        link.close()
        raise
