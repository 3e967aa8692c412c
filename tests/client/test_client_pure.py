"""The parts of the client that do not use the network."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.bootstrap import parse_bootstrap
from penstock.client.connection import choose_version
from penstock.client.errors import error_of
from penstock.client.in_flight import FrameReader
from penstock.client.metadata import Metadata
from penstock.client.producer.partitioner import StickyPartitioner, murmur2, partition_of_key
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.protocol.apis import find_api
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.schema import Versions
from penstock.world.real import RealRng


@pytest.mark.parametrize(
    ("key", "hashed"),
    # From Apache Kafka's UtilsTest.testMurmur2.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32
    assert partition_of_key(key, 11) == (hashed & 0x7FFFFFFF) % 11


def test_records_without_a_key_stay_on_a_partition_for_one_batch() -> None:
    sticky = StickyPartitioner(RealRng(), batch_bytes=1000)
    chosen = [sticky.partition_of("t", 5, 100) for _ in range(100)]
    runs = [chosen[at : at + 10] for at in range(0, 100, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert [sticky.partition_of("one", 1, 5000) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("key", "supported", "max_version", "chosen"),
    [
        (1, Versions(4, 18), None, 18),
        (1, Versions(4, 30), None, 18),
        (1, Versions(0, 12), None, 12),
        (1, Versions(4, 18), 12, 12),
        (22, Versions(0, 6), None, 5),
    ],
    ids=["equal", "newer broker", "older broker", "max version", "unstable"],
)
def test_the_highest_common_version_is_chosen(
    key: int, supported: Versions, max_version: int | None, chosen: int
) -> None:
    assert choose_version(find_api(key), {key: supported}, max_version) == chosen


@pytest.mark.parametrize(
    ("supported", "max_version", "reason"),
    [
        ({}, None, "does not support Fetch"),
        ({1: Versions(0, 3)}, None, "supports Fetch versions 0-3, this client 4-18"),
        ({1: Versions(19, 20)}, None, "19-20"),
        ({1: Versions(13, 18)}, 12, "needs version 12 or lower"),
    ],
)
def test_without_a_common_version_the_error_names_both_ranges(
    supported: dict[int, Versions], max_version: int | None, reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        choose_version(find_api(1), supported, max_version)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, b,[::1]:3,[::1]") == [
        ("a", 1),
        ("b", 9092),
        ("::1", 3),
        ("::1", 9092),
    ]


@pytest.mark.parametrize(
    "text", ["", " , ", "a:", ":9", "a:0", "a:70000", "a:x", "[::1", "[::1]9", "http://a:9092"]
)
def test_invalid_bootstrap_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|empty"):
        parse_bootstrap(text)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_are_assembled_from_any_chunks(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader()
    frames: list[bytes] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        frames += map(bytes, reader.feed(stream[at : at + size]))
        at += size
    assert frames == bodies


def test_an_invalid_frame_size_is_refused_before_the_frame_is_read() -> None:
    reader = FrameReader(100)
    with pytest.raises(ProtocolError, match="HTTP"):
        reader.feed(b"HTTP/1.1 400")
    reader = FrameReader(100)
    assert reader.feed(b"\0\0") == []
    with pytest.raises(ProtocolError, match="at most 100"):
        reader.feed(b"\1\0")


def test_an_unknown_error_code_is_named() -> None:
    assert "error code 999" in str(error_of(999, "refused"))


def test_metadata_with_an_older_leader_epoch_is_ignored() -> None:
    def response(leader: int, epoch: int, topic_id: int = 1) -> MetadataResponse:
        partition = MetadataResponse.Topic.Partition(
            partition_index=0, leader_id=leader, leader_epoch=epoch
        )
        return MetadataResponse(
            topics=(
                MetadataResponse.Topic(
                    name="t", topic_id=UUID(int=topic_id), partitions=(partition,)
                ),
            )
        )

    metadata = Metadata()
    leaders = []
    for update in (
        response(1, 4),
        response(3, 2),
        response(2, 5),
        response(-1, 6),
        response(3, 0, topic_id=2),
    ):
        metadata.forget("t")
        metadata.update(update)
        leaders.append(metadata.topics["t"].partition(0).leader)
    assert leaders == [1, 1, 2, -1, 3]
