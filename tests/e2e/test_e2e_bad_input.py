"""Malformed and excessive input to a real broker gets Kafka's error code or a closed connection,
and other clients are served meanwhile."""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchRequest
from penstock.records.batch import crc_of, write_crc
from penstock.records.build import build_batch
from tests.e2e.penstock_process import PenstockProcess
from tests.e2e.raw_connection import (
    TIMEOUT_S,
    RawConnection,
    create_topic,
    encoded,
    metadata,
    produce,
)

# Another client stays connected.
pytestmark = pytest.mark.usefixtures("bystander")

CONNECTIONS = 1_000
# Positions of fields in a batch.
MAGIC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, COUNT_AT = 16, 21, 23, 57
# The most memory that a client that never reads may cost the broker.
STUCK_CLIENT_BYTES = 200 * 1024 * 1024


def new_name() -> str:
    return f"bad-{uuid4().hex[:8]}"


@pytest.fixture
def topic(connection: RawConnection) -> str:
    name = new_name()
    assert create_topic(connection, name) == ErrorCode.NONE
    # Apache Kafka responds before the broker has replayed the topic, and lists it before it leads
    # the partition.
    deadline = time.monotonic() + TIMEOUT_S
    while (
        produce(connection, name, b"").error_code != ErrorCode.INVALID_RECORD
        and time.monotonic() < deadline
    ):
        continue
    return name


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, 3) + b"raw"


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def a_batch() -> bytearray:
    return bytearray(
        build_batch([(None, b"value %d" % number, (), 1_700_000_000_000) for number in range(3)])
    )


def with_crc(batch: bytearray) -> bytes:
    write_crc(batch, 0, crc_of(batch, 0, len(batch)))
    return bytes(batch)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 2**31 - 1), id="2-GB-frame"),
        pytest.param(struct.pack(">i", 104_857_601), id="just-above-socket.request.max.bytes"),
        pytest.param(struct.pack(">i", -1), id="negative-size"),
        pytest.param(struct.pack(">i", -(2**31)), id="most-negative-size"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
        pytest.param(b"POST /v1 HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", id="http-post"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), id="tls"),
        pytest.param(framed(b""), id="empty-frame"),
        pytest.param(framed(b"\x00\x03"), id="no-room-for-a-header"),
        pytest.param(framed(header(3, 9)[:9]), id="cut-header"),
        pytest.param(framed(header(999, 0)), id="unknown-key"),
        pytest.param(framed(header(-1, 0)), id="negative-key"),
        pytest.param(framed(header(3, 99) + bytes(20)), id="metadata-v99"),
        pytest.param(framed(header(3, -1) + bytes(20)), id="metadata-v-1"),
        pytest.param(framed(header(0, 2) + bytes(40)), id="produce-v2"),
        pytest.param(framed(header(1, 3) + bytes(40)), id="fetch-v3"),
        pytest.param(framed(header(3, 1) + struct.pack(">i", 2**31 - 1)), id="two-billion-topics"),
    ],
)
def test_the_broker_closes_the_connection_of_a_peer_that_violates_the_protocol(
    connection: RawConnection, data: bytes
) -> None:
    connection.send(data)
    assert connection.is_closed_by_broker()


@pytest.mark.parametrize(
    "data",
    [struct.pack(">i", -7), struct.pack(">ih", 1, 2) + b"\xff\xfe"],
    ids=["minus-seven-topics", "not-utf-8"],
)
def test_input_that_kafka_reads_leniently_gets_a_response_or_a_closed_connection(
    connection: RawConnection, data: bytes
) -> None:
    """Kafka reads -7 as null and replaces invalid UTF-8. Closing the connection is acceptable
    too; no response is not."""
    connection.send(framed(header(3, 1) + data))
    try:
        assert connection.frame()
    except ConnectionError:
        assert connection.is_closed_by_broker()


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_answered_as_version_0(
    connection: RawConnection, version: int
) -> None:
    connection.send(framed(header(18, version) + b"\x00\x02x\x02y\x00"))
    response = connection.receive(0, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert any(api.api_key == 18 and api.max_version >= 3 for api in response.api_keys)


def test_a_bad_crc_is_refused(connection: RawConnection, topic: str) -> None:
    batch = a_batch()
    batch[-1] ^= 1
    assert produce(connection, topic, bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (127, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_wrong_magic_is_refused(
    connection: RawConnection, topic: str, magic: int, code: ErrorCode
) -> None:
    """Old formats are INVALID_RECORD, unknown ones CORRUPT_MESSAGE."""
    batch = a_batch()
    batch[MAGIC_AT] = magic
    assert produce(connection, topic, with_crc(batch)).error_code == code


@pytest.mark.parametrize(
    ("count", "last_delta"),
    [(2, 2), (4, 2), (3, 0), (3, 9), (0, -1), (-1, 2), (2**31 - 1, 2**31 - 2)],
)
def test_wrong_record_counts_are_refused(
    connection: RawConnection, topic: str, count: int, last_delta: int
) -> None:
    batch = a_batch()
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, last_delta)
    struct.pack_into(">i", batch, COUNT_AT, count)
    assert produce(connection, topic, with_crc(batch)).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(connection: RawConnection, topic: str, codec: int) -> None:
    batch = a_batch()
    struct.pack_into(">h", batch, ATTRIBUTES_AT, codec)
    assert produce(connection, topic, with_crc(batch)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("cut", [1, 12, 60, 61, 70])
def test_a_cut_batch_is_refused(connection: RawConnection, topic: str, cut: int) -> None:
    assert produce(connection, topic, bytes(a_batch()[:cut])).error_code == ErrorCode.INVALID_RECORD


def test_two_batches_for_one_partition_are_refused(connection: RawConnection, topic: str) -> None:
    assert produce(connection, topic, bytes(a_batch() * 2)).error_code == ErrorCode.INVALID_RECORD


def test_a_refused_batch_is_not_in_the_log(connection: RawConnection, topic: str) -> None:
    bad = a_batch()
    bad[-1] ^= 1
    produce(connection, topic, bytes(bad))
    assert produce(connection, topic, bytes(a_batch())).base_offset == 0


@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1])
def test_an_unknown_partition_is_refused(
    connection: RawConnection, topic: str, partition: int
) -> None:
    response = produce(connection, topic, bytes(a_batch()), partition=partition)
    assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


ILLEGAL = [
    "",
    ".",
    "..",
    "a/b",
    "../../etc",
    "x" * 250,
    "a b",
    "ü",
    "a\x00b",
    "__cluster_metadata/0",
]


@pytest.mark.parametrize("name", ILLEGAL, ids=lambda name: repr(name)[:12])
def test_illegal_topic_names_are_refused(connection: RawConnection, name: str) -> None:
    assert create_topic(connection, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert metadata(connection, name).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partitions", [0, -2, -(2**31)])
def test_impossible_partition_counts_are_refused(
    connection: RawConnection, partitions: int
) -> None:
    assert (
        create_topic(connection, new_name(), partitions=partitions) == ErrorCode.INVALID_PARTITIONS
    )


@pytest.mark.parametrize("partitions", [10_000, 1_000_000, 2**31 - 1])
def test_too_many_partitions_in_one_request_are_refused(
    connection: RawConnection, partitions: int
) -> None:
    assert create_topic(connection, new_name(), partitions=partitions) == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("factor", [0, -2, -(2**15), 2, 4, 2**15 - 1])
def test_impossible_replication_factors_are_refused(connection: RawConnection, factor: int) -> None:
    assert (
        create_topic(connection, new_name(), factor=factor) == ErrorCode.INVALID_REPLICATION_FACTOR
    )


def test_a_client_that_never_reads_costs_bounded_memory(
    bootstrap: str, broker: PenstockProcess | None, bystander: RawConnection, topic: str
) -> None:
    big = build_batch([(None, bytes(900_000), (), 1_700_000_000_000)])
    assert all(produce(bystander, topic, big).error_code == ErrorCode.NONE for _ in range(10))
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=0, partition_max_bytes=10_000_000
    )
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=10_000_000,
        topics=(FetchRequest.Topic(topic=topic, partitions=(partition,)),),
    )
    before = resident_bytes(broker)
    with RawConnection(bootstrap, receive_buffer=4096) as stuck:
        stuck.socket.settimeout(0.5)
        sent = 0
        # A response has 10 MB: the broker stops reading long before this many requests.
        with pytest.raises(TimeoutError):
            for _ in range(200_000):
                stuck.send(encoded(fetch, 11))
                sent += 1
        for _ in range(100):
            assert metadata(bystander, topic).topics[0].error_code == ErrorCode.NONE
        assert resident_bytes(broker) - before < STUCK_CLIENT_BYTES, (
            f"after {sent} fetches of 10 MB without a read"
        )


def resident_bytes(broker: PenstockProcess | None) -> int:
    """Return the resident memory of our process; 0 for an external broker."""
    if broker is None:
        return 0
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def test_a_thousand_concurrent_connections_are_served(
    bootstrap: str, bystander: RawConnection
) -> None:
    request = encoded(ApiVersionsRequest(), 0)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawConnection(bootstrap)) for _ in range(CONNECTIONS)]
        for client in clients:
            client.send(request)
        assert metadata(bystander).brokers
        assert all(
            client.receive(0, ApiVersionsResponse).error_code == ErrorCode.NONE
            for client in clients
        )
    with RawConnection(bootstrap) as late:
        assert metadata(late).brokers
