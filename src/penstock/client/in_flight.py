"""Split a connection's byte stream into frames, and match responses to requests.

Knows neither the network nor retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode, ProtocolError
from penstock.limits import MAX_RESPONSE_BYTES
from penstock.protocol.apis import Api
from penstock.protocol.codec import decode
from penstock.protocol.framing import SIZE_BYTES, frame_size, split_frames
from penstock.protocol.headers import API_VERSIONS_KEY, decode_response_header

_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class FrameReader:
    """Assembles complete frames from the chunks of a stream."""

    __slots__ = ("_maximum", "_needed", "_pending")

    def __init__(self, maximum: int = MAX_RESPONSE_BYTES) -> None:
        self._maximum = maximum
        self._pending = bytearray()
        # Bytes that must be pending before the next frame is complete, as far as known.
        self._needed = SIZE_BYTES

    def feed(self, data: bytes) -> list[memoryview]:
        """Return the frames that are complete now, and keep the rest.

        Raises ProtocolError for a negative or too large frame size.
        """
        whole: bytes | bytearray = data
        if self._pending:
            self._pending += data
            whole = self._pending
            if len(whole) < self._needed:
                return []
        frames, consumed = split_frames(whole, self._maximum)
        # The frames are views of this buffer, so the rest is copied to a new one.
        self._pending = bytearray(memoryview(whole)[consumed:])
        has_size = len(self._pending) >= SIZE_BYTES
        self._needed = SIZE_BYTES + (frame_size(self._pending, 0, self._maximum) if has_size else 0)
        return frames


@dataclass(slots=True)
class PendingRequest:
    """A request that was sent and has no response yet."""

    api: Api
    version: int
    response: type
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle

    def decode(self, frame: memoryview) -> object:
        _header, at = decode_response_header(self.api.key, self.version, frame)
        body = frame[at:]
        version = self.version
        if self.api.key == API_VERSIONS_KEY and body[:2] == _UNSUPPORTED_VERSION:
            # A broker that does not know the requested version responds with version 0 (KIP-511).
            version = 0
        return decode(self.response, version, body)


class InFlightRequests:
    """The pending requests of a connection, by correlation id."""

    __slots__ = ("_next_id", "_pending")

    def __init__(self) -> None:
        self._next_id = 0
        self._pending: dict[int, PendingRequest] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def next_correlation_id(self) -> int:
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % 2**31
        return correlation_id

    def add(self, correlation_id: int, request: PendingRequest) -> None:
        self._pending[correlation_id] = request

    def complete(self, frame: memoryview) -> None:
        """Complete the request that this response frame belongs to.

        Raises ProtocolError for an unknown correlation id or a response that cannot be decoded.
        """
        if len(frame) < 4:
            raise ProtocolError(f"a response of {len(frame)} bytes has no correlation id")
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        request = self._pending.get(correlation_id)
        if request is None:
            raise ProtocolError(
                f"a response has correlation id {correlation_id}, which no pending request has"
            )
        message = request.decode(frame)
        del self._pending[correlation_id]
        request.timer.cancel()
        _settle(request.future, lambda future: future.set_result(message))

    def fail(self, error: Exception) -> None:
        """Fail all pending requests with this error."""
        pending, self._pending = self._pending, {}
        for request in pending.values():
            request.timer.cancel()
            _settle(request.future, lambda future: future.set_exception(error))
            if not request.future.cancelled():
                # The waiter may be cancelled before it runs; retrieve the exception so that
                # asyncio does not log it.
                request.future.exception()


def _settle(future: asyncio.Future[Any], settle: Callable[[asyncio.Future[Any]], None]) -> None:
    """Settle a future unless its waiter was cancelled."""
    if not future.done():
        settle(future)
