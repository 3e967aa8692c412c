"""Batches that the leader opens on produce: a topic's own codec, and the keys that a compacted
topic requires. Appends keep their order."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig, parse_topic_settings
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import MAX_INLINE_OPENED_BYTES
from penstock.log.admission import Opening, open_in_child, opening_of
from penstock.records.batch import batches as batches_in
from penstock.records.batch import read_header
from penstock.records.build import build_batch
from penstock.records.compression import Codec
from penstock.records.record import read_records, records_of
from penstock.records.rewriting import RecordsRefused
from penstock.world import World
from penstock.world.real import RealDisk
from tests.log.making import in_real_world
from tests.node.test_node_partition import new_partition

NAME = TopicPartition("orders", 0)
RECORDS = [(b"k%d" % number, b"v" * 50, (("h", b"x"),), 1_000 + number) for number in range(100)]


def opening(**settings: object) -> Opening:
    result = opening_of(LogConfig(**settings), NAME)  # type: ignore[arg-type]
    assert result is not None
    return result


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        ({"compression_type": "uncompressed"}, Codec.NONE),
        ({"compression_type": "gzip", "compression_gzip_level": 9}, Codec.GZIP),
        ({"compression_type": "gzip", "compression_gzip_level": -1}, Codec.GZIP),
        ({"compression_type": "snappy"}, Codec.SNAPPY),
        ({"compression_type": "lz4", "compression_lz4_level": 17}, Codec.LZ4),
        ({"compression_type": "zstd", "compression_zstd_level": 22}, Codec.ZSTD),
        ({"compression_type": "zstd", "compression_zstd_level": -5}, Codec.ZSTD),
    ],
)
def test_a_topics_codec_replaces_the_producers(
    source: Codec, settings: dict[str, object], codec: Codec
) -> None:
    batch = build_batch(RECORDS, codec=source, producer_id=4, producer_epoch=1, base_sequence=7)
    opened = opening(**settings).of(batch)
    before, after = read_header(batch), read_header(opened)
    assert after.codec == codec
    assert (opened is batch) == (source is codec)
    same = (
        "base_offset",
        "last_offset_delta",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "base_sequence",
        "record_count",
    )
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert list(records_of(opened, after)) == list(records_of(batch, before))


def test_batches_of_most_topics_are_not_opened() -> None:
    assert opening_of(LogConfig(), NAME) is None
    assert parse_topic_settings({"compression.type": "zstd"}) == {"compression.type": "zstd"}


def test_records_without_a_key_are_listed() -> None:
    batch = build_batch(
        [(b"k", b"v", (), 1), (None, b"v", (), 1), (b"", None, (), 1), (None, None, (), 1)],
        codec=Codec.LZ4,
    )
    with pytest.raises(RecordsRefused) as refused:
        opening(cleanup_policy=("compact",)).of(batch)
    error = pickle.loads(pickle.dumps(refused.value))
    assert (error.code, error.numbers) == (ErrorCode.INVALID_RECORD, (1, 3))
    assert (
        error.reason
        == "Compacted topic cannot accept message without key in topic partition orders-0."
    )
    assert error.message == refused.value.message


def test_an_invalid_batch_is_refused() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        opening(compression_type="zstd").of(bytes(batch))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError) as refused:
        opening(compression_type="zstd").of(b"short")
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_the_child_process_does_not_return_an_unchanged_batch() -> None:
    batch = build_batch(RECORDS)
    assert open_in_child(RealDisk(), opening(cleanup_policy=("compact",)), batch) is None
    assert open_in_child(RealDisk(), opening(compression_type="zstd"), batch) is not None


def test_only_small_uncompressed_batches_are_opened_on_the_event_loop() -> None:
    zstd = opening(compression_type="zstd")
    assert zstd.is_small(build_batch(RECORDS))
    assert not zstd.is_small(build_batch(RECORDS, codec=Codec.LZ4))
    assert not zstd.is_small(build_batch([(b"k", b"v" * MAX_INLINE_OPENED_BYTES, (), 1)]))
    assert not zstd.is_small(build_batch([(b"k", b"v", (), 1)] * 201))


def test_appends_keep_their_order_when_some_batches_are_opened_in_the_child_process(
    tmp_path: Path,
) -> None:
    """Small batches wait for a large one before them. A refused append and a cancelled one hold up
    no other."""

    async def main(world: World, path: str) -> None:
        config = LogConfig(
            cleanup_policy=("compact",), compression_type="zstd", max_message_bytes=10_000_000
        )
        partition, _tasks = await new_partition(world, path, config)
        batches = [
            build_batch([(b"large", b"v" * 2_000_000, (), 1)]),
            build_batch([(None, b"no key", (), 1)]),
            build_batch([(b"cancelled", b"v" * 20_000, (), 1)]),
            build_batch([(b"small", b"v", (), 1)]),
            build_batch([(b"compressed", b"v", (), 1)], codec=Codec.GZIP),
        ]
        appending = [partition.append_produced(batch) for batch in batches]
        tasks = [append for append in appending if isinstance(append, asyncio.Task)]
        assert len(tasks) == len(batches)
        tasks[2].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes[1], RecordsRefused)
        assert isinstance(outcomes[2], asyncio.CancelledError)
        result = partition.read(0, 10_000_000, committed_only=False)
        assert result.range is not None
        data = result.range.read()
        assert [record.key for record in read_records(data)] == [b"large", b"small", b"compressed"]
        assert {header.codec for _position, header in batches_in(data)} == {Codec.ZSTD}
        # No append is queued any more: a small batch is opened and appended synchronously.
        assert not isinstance(
            partition.append_produced(build_batch([(b"again", b"v", (), 1)])), asyncio.Task
        )

    in_real_world(tmp_path, main)
