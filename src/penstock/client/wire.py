"""The bytes of one connection: frames out of a stream, and answers matched to what was asked. Knows
no network and no retries."""

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


class FrameReader:
    """Gathers the pieces in which a stream arrives into whole frames."""

    __slots__ = ("_maximum", "_pending", "_wanted")

    def __init__(self, maximum: int = MAX_RESPONSE_BYTES) -> None:
        self._maximum = maximum
        self._pending = bytearray()
        self._wanted = SIZE_BYTES

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that are whole now; what is left waits. ProtocolError for a size that no frame
        can have."""
        whole: bytes | bytearray = data
        if self._pending:
            self._pending += data
            whole = self._pending
            if len(whole) < self._wanted:
                return []
        frames, taken = split_frames(whole, self._maximum)
        # The frames are windows into what was gathered: a new buffer begins with the rest.
        self._pending = bytearray(memoryview(whole)[taken:])
        known = len(self._pending) >= SIZE_BYTES
        self._wanted = SIZE_BYTES + (frame_size(self._pending, 0, self._maximum) if known else 0)
        return frames


@dataclass(slots=True)
class Waiting:
    """A request that was sent, until its answer comes."""

    api: Api
    version: int
    response: type
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle

    def decode(self, frame: memoryview) -> object:
        _header, at = decode_response_header(self.api.key, self.version, frame)
        body = frame[at:]
        version = self.version
        if self.api.key == API_VERSIONS_KEY and body[:2] == _UNSUPPORTED:
            # A broker that does not know the version asked for answers with the oldest (KIP-511).
            version = 0
        return decode(self.response, version, body)


_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class Ledger:
    """What is under way on a connection, by correlation id."""

    __slots__ = ("_next_id", "_waiting")

    def __init__(self) -> None:
        self._next_id = 0
        self._waiting: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def next_id(self) -> int:
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % 2**31
        return correlation_id

    def enter(self, correlation_id: int, waiting: Waiting) -> None:
        self._waiting[correlation_id] = waiting

    def answer(self, frame: memoryview) -> None:
        """Hands an answer to who waits for it. ProtocolError where nobody asked, or where it cannot
        be read."""
        if len(frame) < 4:
            raise ProtocolError(f"an answer of {len(frame)} bytes has no correlation id")
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            raise ProtocolError(f"an answer to request {correlation_id}, which was never asked")
        message = waiting.decode(frame)
        del self._waiting[correlation_id]
        waiting.timer.cancel()
        _settle(waiting.future, lambda future: future.set_result(message))

    def fail(self, error: Exception) -> None:
        """Everything under way ends with this error."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.timer.cancel()
            _settle(one.future, lambda future: future.set_exception(error))
            if not one.future.cancelled():
                # whoever waits may be cancelled in this very turn: then nobody need hear of it
                one.future.exception()


def _settle(future: asyncio.Future[Any], settle: Callable[[asyncio.Future[Any]], None]) -> None:
    """Who asked may have been cancelled; then the answer is for nobody."""
    if not future.done():
        settle(future)
