"""Frames and headers: splitting, building, and which header version a message has."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.protocol.apis import APIS, response_class
from penstock.protocol.codec import decode, decode_from, encode_bytes
from penstock.protocol.framing import frame, frame_request, frame_response, frame_size, split_frames
from penstock.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest


def joined(parts: list[Any]) -> bytes:
    return b"".join(parts)


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 300))
def test_frames_are_found_wherever_the_stream_is_cut(bodies: list[bytes], cut: int) -> None:
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    first, taken = split_frames(stream[:cut], 40)
    second, taken_then = split_frames(stream[taken:], 40)
    assert [bytes(body) for body in first + second] == bodies
    assert taken <= min(cut, len(stream))
    assert taken + taken_then == len(stream)


def test_frames_are_views_of_the_buffer() -> None:
    buffer = bytearray(b"\0\0\0\x01a\0\0\0\x02bc\0\0")
    frames, taken = split_frames(buffer, 100)
    assert [bytes(body) for body in frames] == [b"a", b"bc"]
    assert taken == 11
    buffer[4] = ord("z")
    assert bytes(frames[0]) == b"z"


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_sizes_out_of_bounds_are_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"invalid frame size {size}, at most 100 is allowed$"):
        split_frames(struct.pack(">i", size), 100)


def test_sizes_at_the_bounds_are_accepted() -> None:
    assert frame_size(b"..\0\0\0\x64", 2, 100) == 100
    assert split_frames(bytes(4), 100) == ([memoryview(b"")], 4)


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"GET / HTTP/1.1", "HTTP"),
        (b"HTTP/1.1 200", "HTTP"),
        (b"\x16\x03\x01\x02\0", "TLS"),
        (b"SSH-2.0", "SSH"),
    ],
)
def test_other_protocols_are_named(first: bytes, protocol: str) -> None:
    with pytest.raises(
        ProtocolError, match=f"the peer appears to speak {protocol}, not Kafka's protocol"
    ):
        split_frames(first, 100 * 1024 * 1024)


def test_header_versions() -> None:
    flexible_from = {api.key: api.flexible_from for api in APIS}
    for key, first in flexible_from.items():
        for version in range(20):
            flexible = first is not None and version >= first
            assert request_header_version(key, version) == (2 if flexible else 1)
            assert response_header_version(key, version) == (1 if flexible and key != 18 else 0)
    with pytest.raises(ProtocolError, match="unknown API key 7"):
        request_header_version(7, 0)


def test_the_client_id_is_never_compact() -> None:
    assert encode_request_header(12, 3, 5, "me").hex(" ") == "00 0c 00 03 00 00 00 05 00 02 6d 65"
    assert (
        encode_request_header(12, 4, 5, "me").hex(" ") == "00 0c 00 04 00 00 00 05 00 02 6d 65 00"
    )
    assert encode_request_header(12, 4, 5, None).hex(" ") == "00 0c 00 04 00 00 00 05 ff ff 00"


@given(
    st.sampled_from(APIS),
    st.integers(0, 30),
    st.integers(-(2**31), 2**31 - 1),
    st.one_of(st.none(), st.text(max_size=20)),
)
def test_headers_round_trip(
    api: Any, version: int, correlation_id: int, client_id: str | None
) -> None:
    """Also in unknown versions: a broker must decode the header to refuse the request."""
    request = encode_request_header(api.key, version, correlation_id, client_id)
    expected = RequestHeader(
        request_api_key=api.key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    assert decode_request_header(request + b"body") == (expected, len(request))
    known = min(max(version, api.versions.first), api.versions.last)
    response = joined(frame_response(response_class(api.key)(), known, correlation_id))[4:]
    header, position = decode_response_header(api.key, known, response)
    assert header == ResponseHeader(correlation_id=correlation_id)
    assert response[position:] == encode_bytes(response_class(api.key)(), known)


def test_invalid_headers_are_refused() -> None:
    with pytest.raises(ProtocolError, match="too short for a header"):
        decode_request_header(b"\0\x0c\0")
    with pytest.raises(ProtocolError, match="RequestHeader v1: the message is truncated"):
        decode_request_header(b"\0\x0c\0\x03\0")
    with pytest.raises(ProtocolError, match="unknown API key 18259"):
        decode_request_header(b"GS\0\0\0\0\0\0\0\0")


def test_a_framed_request_round_trips() -> None:
    framed = joined(frame_request(HeartbeatRequest(group_id="g", member_id="m"), 4, 77, "client"))
    ((body,), taken) = split_frames(framed, 1_000)
    assert taken == len(framed)
    header, position = decode_request_header(body)
    assert header == RequestHeader(
        request_api_key=12, request_api_version=4, correlation_id=77, client_id="client"
    )
    assert decode_from(HeartbeatRequest, 4, body, position) == (
        HeartbeatRequest(group_id="g", member_id="m"),
        len(body),
    )


def test_framed_responses_have_kafkas_bytes() -> None:
    assert (
        joined(frame_response(HeartbeatResponse(error_code=27), 4, 1)).hex(" ")
        == "00 00 00 0c 00 00 00 01 00 00 00 00 00 00 1b 00"
    )
    assert (
        joined(frame_response(ApiVersionsResponse(), 3, 1)).hex(" ")
        == "00 00 00 0c 00 00 00 01 00 00 01 00 00 00 00 00"
    )
    assert (
        joined(frame_request(ApiVersionsRequest(), 3, 1, None)).hex(" ")
        == "00 00 00 0e 00 12 00 03 00 00 00 01 ff ff 00 01 01 00"
    )
    assert (
        joined(frame_request(SaslHandshakeRequest(mechanism="P"), 1, 1, "")).hex(" ")
        == "00 00 00 0d 00 11 00 01 00 00 00 01 00 00 00 01 50"
    )


def test_records_stay_separate_parts_of_a_frame() -> None:
    records = memoryview(b"batches")
    partition = FetchResponse.Response.Partition(records=records)
    parts: list[Any] = frame_response(
        FetchResponse(responses=(FetchResponse.Response(topic="t", partitions=(partition,)),)),
        12,
        9,
    )
    assert len(parts) == 3
    assert parts[1] is records
    framed = joined(parts)
    assert frame_size(framed, 0, 1_000) == len(framed) - 4
    header, position = decode_response_header(1, 12, framed[4:])
    assert header.correlation_id == 9
    assert (
        decode(FetchResponse, 12, framed[4 + position :]).responses[0].partitions[0].records
        == b"batches"
    )


def test_frames_of_no_parts_and_of_records_only() -> None:
    assert frame([]) == [bytes(4)]
    assert frame([memoryview(b"abc")]) == [b"\0\0\0\x03", b"abc"]


class TooLong:
    def __len__(self) -> int:
        return 2**31


def test_a_frame_above_the_maximum_size_is_refused() -> None:
    with pytest.raises(ValueError, match="exceeds the protocol's maximum"):
        frame([b"", TooLong()])


def test_headers_and_records_cannot_be_framed() -> None:
    with pytest.raises(ValueError, match="RequestHeader is neither a request nor a response"):
        frame_response(RequestHeader(), 1, 1)
