"""The receive buffer: frames are complete however they arrive, and memory follows the received
bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.limits import MIN_RECEIVE_BYTES
from penstock.server.receive import ReceiveBuffer

MEGABYTE = 1024 * 1024


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(buffer: ReceiveBuffer, data: bytes, most: int, take: int = 1_000) -> list[bytes]:
    """Read as a transport does, with a bound on the bytes and the frames of each read."""
    frames = []
    while data:
        room = buffer.room()
        count = min(len(room), len(data), most)
        assert count > 0
        room[:count] = data[:count]
        data = data[count:]
        buffer.received(count)
        frames += frames_of(buffer, take)
        buffer.settle()
    return frames


def frames_of(buffer: ReceiveBuffer, most: int = 1_000) -> list[bytes]:
    frames: list[bytes] = []
    while len(frames) < most and (frame := buffer.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 100) | st.integers(0, 12_000), max_size=8),
    most=st.integers(1, 50) | st.integers(1, 10_000),
    shared=st.integers(16, 9_000),
    take=st.integers(0, 3),
)
def test_frames_are_split_correctly_however_they_arrive(
    sizes: list[int], most: int, shared: int, take: int
) -> None:
    bodies = [
        bytes([(number + at) % 251 for at in range(size)]) for number, size in enumerate(sizes)
    ]
    common = memoryview(bytearray(shared))
    buffer = ReceiveBuffer(common, MEGABYTE)
    frames = feed(buffer, b"".join(map(framed, bodies)), most, take)
    common[:] = bytes([0xFF]) * shared  # another connection may use the shared buffer now
    assert frames + frames_of(buffer) == bodies
    assert buffer.held == 0


def test_a_frame_is_a_view_and_no_copy() -> None:
    shared = memoryview(bytearray(1_000))
    buffer = ReceiveBuffer(shared, MEGABYTE)
    buffer.room()[:7] = framed(b"abc")
    buffer.received(7)
    frame = buffer.next_frame()
    assert frame is not None
    frame[0] = ord("x")
    assert bytes(shared[4:7]) == b"xbc"


def test_a_large_announced_size_takes_little_memory() -> None:
    buffer = ReceiveBuffer(memoryview(bytearray(1_000)), 100 * MEGABYTE)
    feed(buffer, struct.pack(">i", 100 * MEGABYTE), 4)
    buffer.room()
    assert buffer.own_bytes <= MIN_RECEIVE_BYTES + 4
    feed(buffer, bytes(MEGABYTE), 10_000)
    assert MEGABYTE < buffer.own_bytes <= 3 * MEGABYTE


def test_the_buffer_grows_to_the_frame_and_is_released() -> None:
    buffer = ReceiveBuffer(memoryview(bytearray(1_000)), 100 * MEGABYTE)
    assert feed(buffer, framed(bytes(MEGABYTE)), 65_536) == [bytes(MEGABYTE)]
    assert buffer.own_bytes == MEGABYTE + 4
    buffer.trim()
    assert buffer.own_bytes == 0


def test_trimming_keeps_held_bytes() -> None:
    buffer = ReceiveBuffer(memoryview(bytearray(1_000)), MEGABYTE)
    feed(buffer, framed(b"abcdef")[:7], 7)
    buffer.trim()
    assert feed(buffer, b"def", 3) == [b"abcdef"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1_001, 2**31 - 1])
def test_invalid_sizes_are_refused(size: int) -> None:
    buffer = ReceiveBuffer(memoryview(bytearray(100)), 1_000)
    with pytest.raises(ProtocolError, match=str(size)):
        feed(buffer, struct.pack(">i", size), 4)
