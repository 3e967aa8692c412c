"""The parts of the client that know no network."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.bootstrap import parse_bootstrap
from penstock.client.faults import error_of
from penstock.client.isolation import shown_batches
from penstock.client.metadata import Metadata
from penstock.client.producer.partitioner import StickyPartitioner, murmur2, partition_of_key
from penstock.client.versions import choose_version
from penstock.client.wire import FrameReader
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.protocol.apis import find_api
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.schema import Versions
from penstock.records.batch import CorruptBatch
from penstock.records.build import build_batch, end_transaction_marker
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


def test_records_without_a_key_stay_until_a_batch_is_full_and_then_move() -> None:
    sticky = StickyPartitioner(RealRng(), batch_bytes=1000)
    chosen = [sticky.partition_of("t", 5, 100) for _ in range(100)]
    runs = [chosen[at : at + 10] for at in range(0, 100, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert [sticky.partition_of("one", 1, 5000) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("key", "offered", "ceiling", "chosen"),
    [
        (1, Versions(4, 18), None, 18),
        (1, Versions(4, 30), None, 18),
        (1, Versions(0, 12), None, 12),
        (1, Versions(4, 18), 12, 12),
        (22, Versions(0, 6), None, 5),
    ],
    ids=["equal", "newer broker", "older broker", "ceiling", "unstable"],
)
def test_the_highest_common_version_is_chosen(
    key: int, offered: Versions, ceiling: int | None, chosen: int
) -> None:
    assert choose_version(find_api(key), {key: offered}, ceiling) == chosen


@pytest.mark.parametrize(
    ("offered", "ceiling", "reason"),
    [
        ({}, None, "does not serve Fetch"),
        ({1: Versions(0, 3)}, None, "serves Fetch in versions 0-3, and this client speaks 4-18"),
        ({1: Versions(19, 20)}, None, "19-20"),
        ({1: Versions(13, 18)}, 12, "here at most 12"),
    ],
)
def test_nothing_in_common_is_told(
    offered: dict[int, Versions], ceiling: int | None, reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        choose_version(find_api(1), offered, ceiling)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_addresses() -> None:
    assert parse_bootstrap("a:1, b,[::1]:3,[::1]") == [
        ("a", 1),
        ("b", 9092),
        ("::1", 3),
        ("::1", 9092),
    ]


@pytest.mark.parametrize(
    "text", ["", " , ", "a:", ":9", "a:0", "a:70000", "a:x", "[::1", "[::1]9", "http://a:9092"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|empty"):
        parse_bootstrap(text)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_come_out_whole_however_they_are_cut(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader()
    found: list[bytes] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        found += map(bytes, reader.feed(stream[at : at + size]))
        at += size
    assert found == bodies


def test_a_size_that_no_answer_has_is_found_before_it_is_read() -> None:
    reader = FrameReader(100)
    with pytest.raises(ProtocolError, match="HTTP"):
        reader.feed(b"HTTP/1.1 400")
    reader = FrameReader(100)
    assert reader.feed(b"\0\0") == []
    with pytest.raises(ProtocolError, match="at most 100"):
        reader.feed(b"\1\0")


def batch(offset: int, producer_id: int, *values: bytes, transactional: bool = True) -> bytes:
    rows = [(None, value, (), 0) for value in values]
    return build_batch(
        rows,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return end_transaction_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=offset,
    )


LOG = b"".join(
    [
        batch(0, 1, b"a", b"b"),  # aborted by 5
        batch(2, 2, b"c"),  # committed by 4
        batch(3, 3, b"plain", transactional=False),
        marker(4, 2, commit=True),
        marker(5, 1, commit=False),
        batch(6, 1, b"d"),  # committed by 9
        batch(7, 2, b"e"),  # aborted by 8
        marker(8, 2, commit=False),
        marker(9, 1, commit=True),
        batch(10, 2, b"f"),  # committed later
    ]
)


def shown(aborted: list[tuple[int, int]] | None) -> list[int]:
    return [header.base_offset for _at, header, is_shown in shown_batches(LOG, aborted) if is_shown]


def test_aborted_batches_and_markers_are_left_out() -> None:
    assert shown([(2, 7), (1, 0)]) == [2, 3, 6, 10]
    assert shown(None) == shown([]) == [0, 2, 3, 6, 7, 10]


def test_an_aborted_transaction_that_began_before_the_fetch() -> None:
    from_two = LOG[len(batch(0, 1, b"a", b"b")) :]
    assert [
        header.base_offset for _at, header, one in shown_batches(from_two, [(1, 0), (2, 7)]) if one
    ] == [2, 3, 6, 10]


def test_a_damaged_batch_is_not_shown() -> None:
    damaged = bytearray(LOG)
    damaged[70] ^= 1
    with pytest.raises(CorruptBatch, match="offset 0 does not match its CRC"):
        list(shown_batches(damaged, None))
    assert list(shown_batches(damaged, None, check_crcs=False))


def test_an_unknown_error_code_is_kept_in_words() -> None:
    assert "error code 999" in str(error_of(999, "refused"))


def test_a_broker_that_lags_behind_cannot_bring_back_a_leader_of_an_earlier_epoch() -> None:
    def answer(leader: int, epoch: int, topic_id: int = 1) -> MetadataResponse:
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
    for one in (answer(1, 4), answer(3, 2), answer(2, 5), answer(-1, 6), answer(3, 0, topic_id=2)):
        metadata.forget("t")
        metadata.take(one)
        leaders.append(metadata.topics["t"].partition(0).leader)
    assert leaders == [1, 1, 2, -1, 3]
