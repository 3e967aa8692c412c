"""Hostile bytes: decoding raises ProtocolError or returns a message, in bounded time and memory.

PENSTOCK_EXAMPLES=1000 runs more examples of the generated tests.
"""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.headers import RequestHeader, ResponseHeader
from penstock.protocol.internal.transaction_records import TransactionLogValue
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.primitives import encode_uvarint
from penstock.protocol.schema import schema_of
from tests.protocol.schema_strategies import all_messages, fewer_examples, messages_of, name_of

MEGABYTE = 1024 * 1024


DAMAGES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=8)


@pytest.mark.parametrize("cls", all_messages(), ids=name_of)
def test_truncated_and_extended_bodies_are_refused(cls: type) -> None:
    for version in range(schema_of(cls).versions.first, schema_of(cls).versions.last + 1):
        _truncate_and_extend(cls, version)


def _truncate_and_extend(cls: type, version: int) -> None:
    @fewer_examples
    @given(messages_of(cls, version))
    def every_cut(message: Any) -> None:
        body = encode_bytes(message, version)
        for cut in range(len(body)):
            with pytest.raises(ProtocolError):
                decode(cls, version, body[:cut])
        with pytest.raises(ProtocolError, match="left over"):
            decode(cls, version, body + b"\0")

    every_cut()


@pytest.mark.parametrize("cls", all_messages(), ids=name_of)
def test_damaged_and_random_bodies_raise_only_protocol_errors(cls: type) -> None:
    for version in range(schema_of(cls).versions.first, schema_of(cls).versions.last + 1):
        _damage(cls, version)


def _damage(cls: type, version: int) -> None:
    @fewer_examples
    @given(messages_of(cls, version), DAMAGES, st.binary(max_size=64))
    def damaged(message: Any, damages: list[tuple[int, int]], noise: bytes) -> None:
        _only_protocol_errors(cls, version, noise)
        body = bytearray(encode_bytes(message, version))
        for position, value in damages:
            if body:
                body[position % len(body)] = value
            _only_protocol_errors(cls, version, body)

    damaged()


def _only_protocol_errors(cls: type, version: int, body: Buffer) -> None:
    with contextlib.suppress(ProtocolError):
        decode(cls, version, body)


def _refused(cls: type, version: int, body: Buffer, error: str, *, peak_mb: float = 0.1) -> None:
    """Assert that a body is refused with an error, quickly and with little memory."""
    _only_protocol_errors(cls, version, b"")  # compiles the decoder before the measurement
    started = time.perf_counter()
    with pytest.raises(ProtocolError, match=error):
        decode(cls, version, body)
    assert time.perf_counter() - started < 3.0
    assert _peak_mb(cls, version, body) < peak_mb


def _peak_mb(cls: type, version: int, body: Buffer) -> float:
    tracemalloc.start()
    try:
        _only_protocol_errors(cls, version, body)
        return tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()


def test_counts_beyond_the_buffer_are_refused() -> None:
    huge = struct.pack(">i", 2**31 - 1)
    _refused(MetadataRequest, 0, huge, "topics: 2147483647 elements")
    _refused(MetadataRequest, 9, encode_uvarint(2**32 - 1), "topics: 4294967294 elements")
    _refused(MetadataRequest, 0, struct.pack(">i", -2), "topics: negative count -2")
    _refused(MetadataRequest, 0, struct.pack(">i", -1), "topics: null is not allowed")
    _refused(CreatePartitionsRequest, 0, huge, "topics: 2147483647 elements")
    # Three partitions fit into the last 100 bytes, four do not.
    _refused(
        FetchRequest,
        13,
        bytes(25) + b"\x02" + bytes(16) + b"\x05" + bytes(100),
        "partitions: 4 elements",
    )


def test_lengths_beyond_the_buffer_are_refused() -> None:
    _refused(
        DescribeGroupsRequest,
        5,
        b"\x02" + encode_uvarint(2**32 - 1) + bytes(9),
        "groups: length 4294967294 exceeds",
    )
    _refused(
        DescribeGroupsRequest,
        5,
        b"\x02" + encode_uvarint(40_001) + bytes(50_000),
        "exceeds the maximum string length 32767",
        peak_mb=0.3,
    )
    partition = b"\0" + bytes(2) + bytes(4) + b"\x02" + b"\x02t" + b"\x02" + bytes(4)
    _refused(ProduceRequest, 9, partition + encode_uvarint(1_000), "records: length 999 exceeds")
    _refused(ProduceRequest, 9, partition + b"\xff\xff\xff\xff\x7f", "varint")


def test_too_many_objects_are_refused() -> None:
    """The counts fit into the buffer: each byte is an empty string, or each two bytes are."""
    count = limits.MAX_REQUEST_OBJECTS + 1
    _refused(
        DescribeGroupsRequest,
        5,
        encode_uvarint(count + 1) + b"\x01" * 2 * MEGABYTE,
        "exceeds the limit of decoded objects",
    )
    _refused(
        MetadataRequest,
        0,
        struct.pack(">i", count) + bytes(2 * count),
        "exceeds the limit of decoded objects",
    )


def test_the_limit_of_objects_is_per_message() -> None:
    """A hundred topics with 20,000 replicas each: no single count exceeds the limit."""
    partition = (
        bytes(2)
        + bytes(4)
        + bytes(4)
        + struct.pack(">i", 20_000)
        + bytes(80_000)
        + struct.pack(">i", 0)
    )
    topic = bytes(2) + b"\0\x01t" + struct.pack(">i", 1) + partition
    body = struct.pack(">i", 0) + struct.pack(">i", 100) + topic * 100
    _refused(
        MetadataResponse,
        0,
        body,
        "replica_nodes: with these 20000 elements the message exceeds the limit of decoded objects",
        peak_mb=16,
    )


def test_a_message_at_the_limit_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many structs of two bytes as the limit allows. The limit is lower here, because tracing
    memory is slow."""
    monkeypatch.setattr(limits, "MAX_REQUEST_OBJECTS", 50_000)
    body = struct.pack(">i", 50_000) + bytes(100_000)
    assert len(decode(MetadataRequest, 0, body).topics or ()) == 50_000
    assert _peak_mb(MetadataRequest, 0, body) < 8
    _refused(
        MetadataRequest,
        0,
        struct.pack(">i", 50_001) + bytes(100_002),
        "topics: with these 50001 elements",
        peak_mb=0.2,
    )


@pytest.mark.parametrize(
    ("cls", "version", "head"),
    [(ResponseHeader, 1, bytes(4)), (ApiVersionsResponse, 3, b"\0\0\x01" + bytes(4))],
)
def test_invalid_tagged_fields_are_refused(cls: type, version: int, head: bytes) -> None:
    """For a message without tagged fields, and for one with them."""
    _refused(cls, version, head + encode_uvarint(2**32 - 1), "4294967295 tagged fields exceed")
    _refused(cls, version, head + b"\x05" + b"\x63\x00", "the message is truncated")
    _refused(
        cls,
        version,
        head + b"\x01\x63\x05\0\0",
        "tagged field 99: length 5 exceeds the 2 bytes left",
    )
    _refused(cls, version, head + b"\x01\x63" + b"\xff" * 5, "varint")
    assert decode(cls, version, head + encode_uvarint(1_000) + b"\x63\x00" * 1_000) == cls()
    _refused(
        cls,
        version,
        head + encode_uvarint(1_001) + b"\x63\x00" * 1_001,
        "1001 tagged fields",
        peak_mb=0.2,
    )


def test_tagged_fields_count_towards_the_limit_of_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_REQUEST_OBJECTS", 50_000)
    topic = b"\x02t" + encode_uvarint(1_000) + b"\x63\x00" * 1_000
    _refused(
        MetadataRequest,
        9,
        encode_uvarint(101) + topic * 100,
        "tagged fields: with these 1000 elements",
        peak_mb=1,
    )


def test_tagged_fields_of_a_wrong_size_are_refused() -> None:
    head = b"\0\0\x01" + bytes(4)
    _refused(
        ApiVersionsResponse,
        3,
        head + b"\x01\x01\x09" + bytes(9),
        "tagged field 1 is 1 bytes shorter",
    )
    _refused(
        ApiVersionsResponse,
        3,
        head + b"\x01\x01\x07" + bytes(8),
        "tagged field 1 is 1 bytes longer",
    )
    _refused(
        TransactionLogValue,
        1,
        bytes(8 + 2 + 4 + 1) + b"\x01" + bytes(16) + b"\x01\x03\x04" + bytes(4),
        "2 bytes shorter",
    )


def test_overlong_varints_are_refused() -> None:
    _refused(MetadataRequest, 9, b"\x80" * 5 + b"\0", "longer than 32 bits")
    _refused(MetadataRequest, 9, b"\xff\xff\xff\xff\x1f", "longer than 32 bits")
    # A padded encoding within 32 bits is valid: null topics, in two bytes.
    assert decode(MetadataRequest, 9, b"\x80\x00" + bytes(4)) == MetadataRequest(
        topics=None, allow_auto_topic_creation=False
    )


def test_invalid_utf8_is_refused() -> None:
    _refused(
        MetadataRequest,
        0,
        b"\0\0\0\x01\0\x02\xc3\x28",
        "MetadataRequest v0: a string is not valid UTF-8",
    )
    _refused(DescribeGroupsRequest, 5, b"\x02\x03\xed\xa0\0\0", "not valid UTF-8")
    _refused(
        RequestHeader,
        2,
        bytes(8) + b"\0\x01\xff\0",
        "RequestHeader v2: a string is not valid UTF-8",
    )
    topic = b"\0" + bytes(6) + b"\x02" + b"\x02\xff" + b"\x01\0\0"
    _refused(ProduceRequest, 9, topic, "not valid UTF-8")
    _refused(ProduceRequest, 9, memoryview(topic), "not valid UTF-8")
