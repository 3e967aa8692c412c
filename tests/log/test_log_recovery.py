"""Recovery from crashes and damaged files, case by case (simulation mixes them at random)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.log.log import Log
from penstock.records.batch import CorruptBatch, batches, crc_matches
from penstock.world import World
from tests.log.making import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    new_log,
    open_store,
    values,
)

COUNT = 60


async def written(world: World, path: str, *, clean: bool = False) -> Log:
    """Return a log of several segments after a crash or a clean shutdown."""
    store = await open_store(world, path)
    log = store.create(PARTITION, TOPIC_ID, SMALL)
    for number in range(COUNT):
        log.append_as_leader(batch(f"value {number}"), number // 25)
    if clean:
        await store.close()
    return log


async def reopened(world: World, path: str) -> Log:
    return (await open_store(world, path)).logs[PARTITION]


def test_a_log_torn_at_any_byte_is_truncated_after_the_last_whole_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World, path: str) -> None:
        log = await written(world, path)
        file, size = log.active.file, log.active.size
        last = [header for _position, header in batches(file.pread(size, 0))][-1]
        for cut in range(1, last.size + 1):
            file.truncate(size - cut)
            recovered = await reopened(world, path)
            assert recovered.end_offset == COUNT - 1
            assert values(recovered)[-1] == f"value {COUNT - 2}"
            assert world.disk.size(log.active.path) == size - last.size
            recovered.append_as_leader(batch(f"value {COUNT - 1}"), 2)
            assert log.active.file.size() == size

    with caplog.at_level(logging.WARNING):
        in_real_world(tmp_path, main)
    assert "truncated from" in caplog.text


def test_everything_is_rebuilt_from_the_segments_alone(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await written(world, path)
        for name in world.disk.list(log.path):
            if not name.endswith(".log"):
                world.disk.remove(f"{log.path}/{name}")
        recovered = await reopened(world, path)
        assert values(recovered) == [f"value {number}" for number in range(COUNT)]
        assert recovered.epochs.entries == log.epochs.entries
        assert [segment.base_offset for segment in recovered.segments] == [
            segment.base_offset for segment in log.segments
        ]
        for before, after in zip(log.segments[:-1], recovered.segments[:-1], strict=True):
            assert [after.offset_index[n] for n in range(len(after.offset_index))] == [
                before.offset_index[n] for n in range(len(before.offset_index))
            ]

    in_real_world(tmp_path, main)


def test_only_unflushed_segments_are_scanned(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        for number in range(COUNT):
            log.append_as_leader(batch(f"value {number}"), 0)
        await log.flushing.all()
        await store.offsets.save_recovery_points()
        # A scan would find the wrong byte in a flushed segment.
        first = log.segments[0].file
        first.pwrite(bytes([first.pread(1, 70)[0] ^ 1]), 70)
        recovered = await reopened(world, path)
        assert recovered.end_offset == COUNT
        part = recovered.read(0, 1, below=COUNT)
        assert part is not None
        data = part.read()
        [(_position, header)] = batches(data)
        assert not crc_matches(data, 0, header), "the reader's CRC check finds it"

    in_real_world(tmp_path, main)


def test_a_log_damaged_below_the_recovery_point_is_refused(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, replace(SMALL, segment_bytes=100_000))
        for number in range(COUNT):
            log.append_as_leader(batch(f"value {number}"), 0)
        await log.flushing.all()
        await store.offsets.save_recovery_points()
        log.active.file.pwrite(b"X", log.active.size // 2)
        before = world.disk.read(log.active.path)
        again = await open_store(world, path)
        assert "not a torn tail" in again.damaged[PARTITION]
        assert PARTITION not in again.logs
        assert world.disk.read(log.active.path) == before
        with pytest.raises(KafkaError):
            again.create(PARTITION, TOPIC_ID, SMALL)

    in_real_world(tmp_path, main)


def test_a_log_shorter_than_its_recovery_point_is_refused(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        for number in range(COUNT):
            log.append_as_leader(batch(f"value {number}"), 0)
        await log.flushing.all()
        await store.offsets.save_recovery_points()
        log.active.file.truncate(0)
        assert "damaged" in (await open_store(world, path)).damaged[PARTITION]

    in_real_world(tmp_path, main)


def test_a_hole_between_segments_ends_the_log_before_it(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await written(world, path)
        middle = log.segments[1]
        positions = [position for position, _header in batches(middle.file.pread(middle.size, 0))]
        middle.file.truncate(positions[-1])
        recovered = await reopened(world, path)
        assert recovered.end_offset == log.segments[2].base_offset - 1
        assert values(recovered) == [f"value {number}" for number in range(recovered.end_offset)]
        assert len(recovered.segments) == 2

    in_real_world(tmp_path, main)


def test_a_stale_tail_of_an_earlier_epoch_is_truncated(tmp_path: Path) -> None:
    """A power failure may bring back truncated bytes. They are recognised by their leader epoch."""

    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, replace(SMALL, segment_bytes=100_000))
        for number in range(10):
            log.append_as_leader(batch(f"value {number}"), 1)
        old = log.active.file.pread(log.active.size, 0)
        log.truncate_to(5)
        log.append_as_leader(batch("other 5"), 2)
        log.active.file.pwrite(old[log.active.size :], log.active.size)
        recovered = await reopened(world, path)
        assert values(recovered) == [*(f"value {number}" for number in range(5)), "other 5"]

    in_real_world(tmp_path, main)


@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"]
)
def test_damage_in_any_file_beside_a_clean_log_leaves_all_records_readable(
    tmp_path: Path, suffix: str
) -> None:
    async def main(world: World, path: str) -> None:
        log = await written(world, path, clean=True)
        marker = world.disk.read(f"{path}/.kafka_cleanshutdown")
        expected = [f"value {number}" for number in range(COUNT)]
        for name in [name for name in world.disk.list(log.path) if name.endswith(suffix)]:
            file = f"{log.path}/{name}"
            good = world.disk.read(file)
            for number in range(0, 8 * len(good), 5):
                bad = bytearray(good)
                bad[number // 8] ^= 1 << number % 8
                world.disk.replace(file, bytes(bad))
                world.disk.replace(f"{path}/.kafka_cleanshutdown", marker)
                recovered = await reopened(world, path)
                assert values(recovered) == expected
                assert [values(recovered, offset)[0] for offset in range(0, COUNT, 7)] == expected[
                    ::7
                ]
                world.disk.replace(file, good)
            if good:
                world.disk.replace(file, good[: len(good) // 2])
                world.disk.replace(f"{path}/.kafka_cleanshutdown", marker)
                assert values(await reopened(world, path)) == expected
                world.disk.replace(file, good)

    in_real_world(tmp_path, main)


FIELDS = {
    "base offset": (0, 8),
    "length": (8, 12),
    "leader epoch": (12, 16),
    "magic": (16, 17),
    "crc": (17, 21),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_outside_the_crc_of_a_sealed_segment_changes_no_payload(
    tmp_path: Path, field: str
) -> None:
    """The 21 bytes that the CRC does not cover; ARCHITECTURE.md lists the effects."""

    async def main(world: World, path: str) -> None:
        log = await written(world, path, clean=True)
        marker = world.disk.read(f"{path}/.kafka_cleanshutdown")
        segment = log.segments[1]
        good = segment.file.pread(segment.size, 0)
        position, header = list(batches(good))[1]
        written_bodies = {good[p + 21 : p + h.size] for p, h in batches(good)}
        start, end = FIELDS[field]
        seen: set[str] = set()
        for bit in range(8 * start, 8 * end):
            bad = bytearray(good)
            bad[position + bit // 8] ^= 1 << bit % 8
            segment.file.pwrite(bad, 0)
            world.disk.replace(f"{path}/.kafka_cleanshutdown", marker)
            recovered = await reopened(world, path)
            try:
                part = recovered.read(header.base_offset, 1, below=COUNT)
                assert part is not None
                data = part.read()
                [(_position, found)] = batches(data)
            except (KafkaError, CorruptBatch, ValueError) as error:
                seen.add(error.code.name if isinstance(error, KafkaError) else "no batch")
                continue
            if not crc_matches(data, 0, found):
                seen.add("checksum")
            else:
                assert data[21:] in written_bodies
                seen.add(
                    "as written" if found.base_offset == header.base_offset else "another offset"
                )
        expected = {
            "base offset": {ErrorCode.KAFKA_STORAGE_ERROR.name, "another offset", "as written"},
            "length": {ErrorCode.KAFKA_STORAGE_ERROR.name, "checksum", "no batch"},
            "leader epoch": {"as written"},
            "magic": {ErrorCode.KAFKA_STORAGE_ERROR.name},
            "crc": {"checksum"},
        }[field]
        assert seen <= expected, seen

    in_real_world(tmp_path, main)
