"""Kafka's frames in the bytes of simulated connections, and faults that are triggered by them.

    fabric.on_frame(crash_leader, api_key=FETCH, source="n2", target="n1", nth=3)

runs `crash_leader` when n2 sends its third Fetch request to n1 from now on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

_REQUEST = struct.Struct(">ihhi")  # size, API key, API version, correlation id
_RESPONSE = struct.Struct(">ii")  # size, correlation id
# A larger size is not the beginning of a frame: the connection does not speak Kafka's protocol.
_MAX_FRAME_BYTES = 128 * 1024 * 1024


class Frame(NamedTuple):
    """A request or response. `size` includes the four bytes of its length. A response whose request
    was not seen has the API key -1."""

    source: str
    target: str
    is_request: bool
    api_key: int
    api_version: int
    size: int


@dataclass(slots=True, eq=False)
class FrameTrigger:
    """Runs `action` at the `nth` frame that matches; None matches every value.

    By default the action runs right after the callback that wrote the first bytes of the frame,
    before any other callback. With `after_bytes` it runs right after the receiving process got that
    many bytes of the frame (-1: all of them), and the bytes after them arrive `hold_s` later.
    """

    action: Callable[[Frame], object]
    is_request: bool
    api_key: int | None
    source: str | None
    target: str | None
    nth: int
    after_bytes: int | None
    hold_s: float

    def matches(self, frame: Frame) -> bool:
        """Count a frame. Return whether it is the one."""
        if (
            frame.is_request != self.is_request
            or self.api_key not in (None, frame.api_key)
            or self.source not in (None, frame.source)
            or self.target not in (None, frame.target)
        ):
            return False
        self.nth -= 1
        return self.nth == 0


Apis = dict[int, tuple[int, int]]


class FrameReader:
    """Finds the frames in one direction of a connection. Both directions share `apis`: the API key
    and version by correlation id, because a response does not contain them."""

    __slots__ = ("_apis", "_header", "_is_request", "_left", "_names", "_struct", "position")

    def __init__(self, source: str, target: str, apis: Apis, *, is_request: bool) -> None:
        self.position = 0  # the number of bytes read so far
        self._names = source, target
        self._apis = apis
        self._is_request = is_request
        self._struct = _REQUEST if is_request else _RESPONSE
        self._left = 0  # bytes of the current frame that are still to come; -1: no frames at all
        self._header = b""

    def skip(self, data: bytes) -> None:
        """Read data that no trigger looks at. Most writes are one whole frame."""
        if not self._left and not self._header and len(data) >= self._struct.size:
            size, *fields, correlation_id = self._struct.unpack_from(data)
            if size + 4 == len(data):
                if self._is_request:
                    self._apis[correlation_id] = fields[0], fields[1]
                else:
                    self._apis.pop(correlation_id, None)
                self.position += len(data)
                return
        self.read(data)

    def read(self, data: bytes) -> list[tuple[int, Frame]]:
        """Return the frames whose header ends in `data`, and the position of each in the stream."""
        found: list[tuple[int, Frame]] = []
        at = 0
        while at < len(data) and self._left >= 0:
            if self._left:
                passed = min(self._left, len(data) - at)
                self._left -= passed
                at += passed
                continue
            part = data[at : at + self._struct.size - len(self._header)]
            self._header += part
            at += len(part)
            if len(self._header) == self._struct.size:
                frame = self._parse(self._header)
                if frame is not None:
                    found.append((self.position + at - len(self._header), frame))
                self._header = b""
        self.position += len(data)
        return found

    def _parse(self, header: bytes) -> Frame | None:
        if self._is_request:
            size, api_key, api_version, correlation_id = _REQUEST.unpack(header)
            self._apis[correlation_id] = api_key, api_version
        else:
            size, correlation_id = _RESPONSE.unpack(header)
            api_key, api_version = self._apis.pop(correlation_id, (-1, -1))
        size += 4
        if not len(header) <= size <= _MAX_FRAME_BYTES:
            self._left = -1
            return None
        self._left = size - len(header)
        return Frame(*self._names, self._is_request, api_key, api_version, size)
