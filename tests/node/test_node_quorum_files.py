"""Files of the quorum: snapshots, quorum-state, and damaged files (rules 18, 19 and 20)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC, NO_UUID
from penstock.log.directory import LogDirectory, formatted_directory
from penstock.metadata.image import BROKER, MetadataDelta, MetadataImage
from penstock.node.quorum import quorum as quorum_module
from penstock.node.quorum.log import MetadataLog, MetadataLogConfig
from penstock.node.quorum.quorum import Quorum
from penstock.node.quorum.snapshot_file import SnapshotDamaged
from penstock.node.quorum.snapshot_store import SnapshotStore
from penstock.protocol.internal.control_records import (
    ControlType,
    VotersRecord,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.metadata_settings import ConfigRecord, FeatureLevelRecord
from penstock.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from penstock.raft.log import OffsetAndEpoch
from penstock.records.batch import batches
from penstock.records.build import NewRecord, build_batch
from penstock.sim.quorum.node import CLUSTER_ID, format_quorum_node, quorum_config
from penstock.world import Offload, World
from penstock.world.real import RealDisk, run
from penstock.world.sim import Simulation
from tests.node.deltas import delta_between

P = ParamSpec("P")
T = TypeVar("T")

TOPIC = UUID(int=4711)
RECORDS: tuple[object, ...] = (
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    TopicRecord(name="orders", topic_id=TOPIC),
    *(
        PartitionRecord(partition_id=index, topic_id=TOPIC, replicas=(1,), isr=(1,), leader=1)
        for index in range(1_200)
    ),
    ConfigRecord(resource_type=BROKER, resource_name="1", name="x", value="1"),
)


def in_real_world(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    run(main)


def config(set_value: str, name: str = "x") -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER, resource_name="1", name=name, value=set_value)


class SingleVoter:
    """A quorum of one voter, without a server: no other node sends requests."""

    def __init__(
        self, world: World, directory: Path, settings: Mapping[str, object] | None = None
    ) -> None:
        self.world = world
        self.path = directory / "d" / f"{METADATA_TOPIC}-0"
        self.config = quorum_config(1, {1: "127.0.0.1:9"}, str(directory / "d"), settings or {})
        format_quorum_node(world, self.config)
        self.applied: list[tuple[MetadataImage, MetadataDelta]] = []
        # The number of steps to apply each image, and the turn of the event loop of each step.
        self.steps = 0
        self.turn = 0
        self.turns: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Quorum:
        directory = formatted_directory(
            self.world.disk, self.config.metadata_log_dir, self.config.node_id
        )
        self.quorum = Quorum(
            self.world,
            self.config,
            CLUSTER_ID,
            directory,
            on_applied=self._on_applied,
            on_leadership=lambda _epoch: None,
            spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)),
        )
        await self.quorum.open()
        await self.quorum.start()
        return self.quorum

    def _on_applied(self, image: MetadataImage, delta: MetadataDelta) -> Iterable[None]:
        self.applied.append((image, delta))
        for _ in range(self.steps):
            self.turns.append(self.turn)
            yield

    async def stop(self) -> None:
        await self.quorum.stop()
        for task in self.tasks:
            task.cancel()


def test_loading_a_snapshot_equals_replaying_the_log(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        snapshots = SnapshotStore(world, LogDirectory(str(tmp_path), NO_UUID), str(tmp_path))
        image, _delta = MetadataImage.empty().replay(RECORDS, 1_300)
        await snapshots.write(image, OffsetAndEpoch(1_301, 3), 0)
        assert await snapshots.load(OffsetAndEpoch(1_301, 3)) == image
        assert [path.name for path in tmp_path.iterdir()] == [
            "00000000000000001301-0000000003.checkpoint"
        ]

    in_real_world(main)


def test_partial_snapshot_is_ignored(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        (tmp_path / "00000000000000000007-0000000001.checkpoint.part").write_bytes(b"half")
        snapshots = SnapshotStore(world, LogDirectory(str(tmp_path), NO_UUID), str(tmp_path))
        snapshots.open()
        assert snapshots.latest is None
        assert list(tmp_path.iterdir()) == []

    in_real_world(main)


def test_failed_snapshot_write_takes_the_log_directory_offline() -> None:
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        node.world.disk.make_dirs("/d")
        directory = LogDirectory("/d", NO_UUID)
        node.drive.fail("/d", {"sync"}, times=1)
        with pytest.raises(
            KafkaError, match="log directory /d is offline: writing a metadata snapshot: "
        ):
            await SnapshotStore(node.world, directory, "/d").write(
                MetadataImage.empty(), OffsetAndEpoch(1, 1), 0
            )
        assert directory.failure is not None

    simulation.run(node.run(main()))


def test_image_of_many_steps_does_not_block_the_event_loop(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        quorum = await voter.start()
        voter.steps = 50
        changing = [asyncio.ensure_future(quorum.append((config(value),))) for value in ("a", "b")]
        while not all(change.done() for change in changing):
            # An append returns, and the next image is published, only after the last step.
            assert (len(voter.turns) % 50 > 0) == (quorum.applied_offset < quorum.image.offset)
            voter.turn += 1
            await asyncio.sleep(0)
        assert len(voter.turns) in (50, 100)  # they may have been committed together
        assert max(voter.turns.count(turn) for turn in voter.turns) <= 8
        await voter.stop()

    in_real_world(main)


def test_delta_of_a_loaded_snapshot_equals_that_of_its_records() -> None:
    before, _delta = MetadataImage.empty().replay(RECORDS[:3], 2)
    after, delta = before.replay(RECORDS[3:], 1_300)
    assert delta_between(before, after) == delta
    assert delta_between(after, after) == MetadataDelta()


def test_restart_loads_the_snapshot_and_the_log_after_it(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        quorum = await voter.start()
        await quorum.append(RECORDS)
        await quorum._snapshots.generate()
        await quorum.append((config("2"),))
        before = quorum.image
        await voter.stop()
        voter.applied.clear()
        quorum = await voter.start()
        assert quorum.image.topics == before.topics
        assert quorum.image.configs == before.configs
        assert voter.applied[0][0].configs[BROKER, "1"] == {"x": "1"}, (
            "the snapshot is published first"
        )
        await voter.stop()

    in_real_world(main)


def test_damaged_snapshot_is_ignored_if_the_log_has_its_records(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        quorum = await voter.start()
        await quorum.append(RECORDS)
        await quorum._snapshots.generate()
        before = quorum.image
        await voter.stop()
        file = next(voter.path.glob("*.checkpoint"))
        damage(file, file.stat().st_size // 2)
        quorum = await voter.start()
        assert quorum.image.topics == before.topics
        await voter.stop()

    in_real_world(main)


def test_damaged_snapshot_is_set_aside_and_the_previous_one_used(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path, {"metadata.max.retention.bytes": 0})
        quorum = await voter.start()
        for number in range(3):
            await quorum.append((*RECORDS, config(str(number))) if number == 0 else (config("n"),))
            await quorum._snapshots.generate()
        assert quorum._log.start_offset > 0
        before = quorum.image
        await voter.stop()
        file = sorted(voter.path.glob("*.checkpoint"))[-1]
        damage(file, file.stat().st_size // 2)
        quorum = await voter.start()
        assert (quorum.image.topics, quorum.image.configs) == (before.topics, before.configs)
        assert file.with_suffix(".checkpoint.damaged").exists()
        await voter.stop()

    in_real_world(main)


def test_node_without_an_intact_snapshot_is_refused_with_instructions(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        quorum = await voter.start()
        await quorum.append(RECORDS)
        await quorum._snapshots.generate()
        await quorum._log.truncate_to_snapshot(quorum._log.snapshots.all[-1])
        await voter.stop()
        (file,) = voter.path.glob("*.checkpoint")
        damage(file, file.stat().st_size // 2)
        with pytest.raises(KafkaError, match=r"no intact snapshot .* format it again"):
            await voter.start()

    in_real_world(main)


def test_snapshot_that_was_cut_after_a_whole_batch_is_damaged(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        snapshots = SnapshotStore(world, LogDirectory(str(tmp_path), NO_UUID), str(tmp_path))
        image, _delta = MetadataImage.empty().replay(RECORDS, 1_300)
        snapshot = OffsetAndEpoch(1_301, 3)
        await snapshots.write(image, snapshot, 0)
        path = Path(snapshots.path(snapshot))
        data = path.read_bytes()
        positions = [position for position, _header in batches(data)]
        for end in (*positions, positions[-1] + 5):
            path.write_bytes(data[:end])
            with pytest.raises(SnapshotDamaged):
                await snapshots.load(snapshot)
            with pytest.raises(SnapshotDamaged):
                await snapshots.read(snapshot, 0, 10)

    in_real_world(main)


def test_pieces_of_a_snapshot_are_checked_each_time_they_are_read(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        snapshots = SnapshotStore(world, LogDirectory(str(tmp_path), NO_UUID), str(tmp_path))
        image, _delta = MetadataImage.empty().replay(RECORDS, 1_300)
        snapshot = OffsetAndEpoch(1_301, 3)
        await snapshots.write(image, snapshot, 0)
        path = Path(snapshots.path(snapshot))
        data = path.read_bytes()
        for position, length in ((0, 1), (0, 9_999_999), (60, 100), (len(data) - 1, 5), (500, 0)):
            expected = len(data), data[position : position + length]
            assert await snapshots.read(snapshot, position, length) == expected
        for position in (-1, len(data)):
            assert await snapshots.read(snapshot, position, 5) == (len(data), b"")
        damage(path, len(data) // 2)
        assert (await snapshots.read(snapshot, 0, 10))[1] == data[:10]
        with pytest.raises(SnapshotDamaged):
            await snapshots.read(snapshot, len(data) // 2 + 100, 1)

    in_real_world(main)


@pytest.mark.parametrize("is_clean", [True, False])
def test_damage_below_the_committed_offset_is_refused_and_not_truncated(
    tmp_path: Path, is_clean: bool
) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        quorum = await voter.start()
        for number in range(20):
            await quorum.append((config(str(number)),))
        if not is_clean:
            await quorum._log.save_committed(quorum.high_watermark)
            quorum.abandon()
        else:
            await voter.stop()
        file = voter.path / "00000000000000000000.log"
        size = file.stat().st_size
        damage(file, size // 2)
        with pytest.raises(KafkaError, match="damaged"):
            await voter.start()
        assert file.stat().st_size == size

    in_real_world(main)


def test_voter_with_a_damaged_quorum_state_does_not_start(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        await voter.start()
        await voter.stop()
        (voter.path / "quorum-state").write_text("{")
        with pytest.raises(KafkaError, match="The vote of this voter is lost"):
            await voter.start()

    in_real_world(main)


def test_unformatted_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="not formatted") as refused:
        formatted_directory(
            RealDisk(),
            str(tmp_path),
            quorum_config(1, {1: "127.0.0.1:9"}, str(tmp_path), {}).node_id,
        )
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_log_behind_a_downloaded_snapshot_restarts_after_it(tmp_path: Path) -> None:
    """The node crashed between the download of the snapshot and the truncation of the log."""

    async def main(world: World) -> None:
        directory = LogDirectory(str(tmp_path), UUID(int=1))
        log = MetadataLog(world, directory, MetadataLogConfig())
        await log.open()
        log.append(RECORDS[:1], 1)
        await log.sync()
        image, _delta = MetadataImage.empty().replay(RECORDS, 1_300)
        await log.snapshots.write(image, OffsetAndEpoch(1_301, 3), 0)
        log = MetadataLog(world, directory, MetadataLogConfig())
        await log.open()
        assert log.end == OffsetAndEpoch(1_301, 3)
        assert log.start_offset == log.synced_end == 1_301

    in_real_world(main)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_log_that_diverges_from_a_downloaded_snapshot_restarts_after_it(
    tmp_path: Path, is_damaged: bool
) -> None:
    """The node crashed before it installed the snapshot. Its records below the end of the snapshot
    are uncommitted ones of a later epoch than the snapshot. They stay if the snapshot is damaged:
    they are not known to be committed then."""

    async def main(world: World) -> None:
        directory = LogDirectory(str(tmp_path), UUID(int=1))
        log = MetadataLog(world, directory, MetadataLogConfig())
        await log.open()
        for epoch in (1, 1, 5, 5, 5):
            log.append((config("x"),), epoch)
        await log.sync()
        image, _delta = MetadataImage.empty().replay(RECORDS[:3], 3)
        await log.snapshots.write(image, OffsetAndEpoch(4, 4), 0)
        if is_damaged:
            damage(Path(log.snapshots.path(OffsetAndEpoch(4, 4))), 100)
        log = MetadataLog(world, directory, MetadataLogConfig())
        await log.open()
        assert log.end == (OffsetAndEpoch(5, 5) if is_damaged else OffsetAndEpoch(4, 4))
        assert log.start_offset == (0 if is_damaged else 4)
        assert log.latest_snapshot == (None if is_damaged else OffsetAndEpoch(4, 4))

    in_real_world(main)


def test_damaged_committed_offset_is_ignored(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        directory = LogDirectory(str(tmp_path), UUID(int=1))
        log = MetadataLog(world, directory, MetadataLogConfig())
        await log.open()
        for _ in range(16):
            log.append((config("x"),), 1)
        await log.sync()
        await log.save_committed(12)
        path = Path(log.path) / ".penstock_committed"
        data = path.read_bytes()
        found = set()
        for position in range(len(data)):
            for bit in (0, 4):
                flipped = bytearray(data)
                flipped[position] ^= 1 << bit
                path.write_bytes(flipped)
                log = MetadataLog(world, directory, MetadataLogConfig())
                await log.open()
                found.add(log.committed)
        assert found == {0}
        path.write_bytes(data)
        await log.open()
        assert log.committed == 12

    in_real_world(main)


@pytest.mark.parametrize(
    ("retention", "snapshots", "start"),
    [
        (MetadataLogConfig(), 4, 0),
        (MetadataLogConfig(retention_bytes=-1, retention_ms=-1), 4, 0),
        (MetadataLogConfig(retention_bytes=0, retention_ms=-1), 2, 30),
        (MetadataLogConfig(segment_bytes=1_000, retention_bytes=17_500, retention_ms=-1), 3, 20),
        (MetadataLogConfig(retention_bytes=-1, retention_ms=1_000), 2, 30),
        (MetadataLogConfig(retention_bytes=-1, retention_ms=3_500), 3, 20),
    ],
)
def test_snapshots_and_records_are_kept_as_long_as_the_retention_settings_say(
    retention: MetadataLogConfig, snapshots: int, start: int
) -> None:
    """Four snapshots, a second apart: at offsets 10, 20, 30 and 40."""
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        node.world.disk.make_dirs("/d")
        log = MetadataLog(node.world, LogDirectory("/d", UUID(int=1)), retention)
        await log.open()
        image = MetadataImage.empty()
        for number in range(40):
            log.append((config("x" * 100, f"n.{number}"),), 1)
            image, _delta = image.replay((config("x" * 100, f"n.{number}"),), number)
            if number % 10 == 9:
                await log.sync()
                await log.snapshots.write(image, OffsetAndEpoch(number + 1, 1), 0)
                await asyncio.sleep(1.0)
        await log.delete_old(applied=40)
        assert (len(log.snapshots.all), log.start_offset) == (snapshots, start)
        log = MetadataLog(node.world, LogDirectory("/d", UUID(int=1)), retention)
        await log.open()
        assert log.end == OffsetAndEpoch(40, 1)
        assert log.start_offset == log.snapshots.all[0].offset

    simulation.run(node.run(main()))


def test_segments_of_the_metadata_log_have_kafkas_settings() -> None:
    settings = {
        "metadata.log.segment.bytes": 1,
        "metadata.log.segment.ms": 2,
        "metadata.max.retention.bytes": 3,
        "metadata.max.retention.ms": 4,
    }
    node_config = quorum_config(1, {1: "127.0.0.1:9"}, "/d", settings)
    assert MetadataLogConfig.of(node_config) == MetadataLogConfig(1, 2, 3, 4)
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        node.world.disk.make_dirs("/d")
        directory = LogDirectory("/d", UUID(int=1))
        log = MetadataLog(node.world, directory, MetadataLogConfig(segment_ms=1_000))
        await log.open()
        for _ in range(3):
            log.append((config("x"),), 1)
            log.append((config("x"),), 1)
            await asyncio.sleep(2.0)
        assert len(log._log.segments) == 3

    simulation.run(node.run(main()))


@pytest.mark.parametrize("voters", [(1,), (1, 2), (2,)])
def test_voters_of_the_log_count_and_not_the_configured_ones(
    tmp_path: Path, voters: tuple[int, ...]
) -> None:
    """A log of kraft.version 1 has voters of its own, as in Kafka (KIP-853)."""

    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        quorum = await voter.start()
        await quorum.append((config("1"),))
        await voter.stop()
        log = MetadataLog(
            world, LogDirectory(str(tmp_path / "d"), UUID(int=1)), MetadataLogConfig()
        )
        await log.open()
        record = VotersRecord(
            voters=tuple(VotersRecord.Voter(voter_id=voter_id) for voter_id in voters)
        )
        key, value = encode_control_key(ControlType.KRAFT_VOTERS), encode_control_value(record)
        batch = build_batch([NewRecord(key, value, (), 0)], control=True)
        log._log.append_as_leader(batch, 1, from_client=False)
        await log.sync()
        await log.save_committed(log.end.offset)
        await log.close()
        log = MetadataLog(
            world, LogDirectory(str(tmp_path / "d"), UUID(int=1)), MetadataLogConfig(), (1, 2, 3)
        )
        await log.open()
        found = log.voter_sets
        assert (found.latest.kraft_version, found.latest.voters.ids) == (1, voters)
        await log.truncate(found.latest.offset)
        assert (found.latest.kraft_version, found.latest.voters.ids) == (0, (1, 2, 3)), (
            "the truncated log has none"
        )

    in_real_world(main)


def test_records_that_are_not_atomic_are_divided_into_batches(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        voter = SingleVoter(world, tmp_path)
        quorum = await voter.start()
        long = tuple(config("x" * 30_000, f"n.{number}") for number in range(300))
        with pytest.raises(KafkaError) as refused:
            await quorum.append(long)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        end_offset = quorum.log_end_offset
        assert await quorum.append(long, is_atomic=False) == end_offset + 299
        assert await quorum.append((config("after"),)) == end_offset + 300
        before = quorum.image
        assert len(before.configs[BROKER, "1"]) == 301
        assert not quorum._loader._uncommitted
        await voter.stop()
        assert (await voter.start()).image.configs == before.configs
        await voter.stop()

    in_real_world(main)


class ObservedThreads:
    """An Offload whose calls take a moment longer. It reports calls that write the same file at the
    same time."""

    def __init__(self, offload: Offload) -> None:
        self.running: list[str] = []
        self.conflicts: list[str] = []
        self.process, self.background = offload.process, offload.background
        self._offload = offload

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        path = next((arg for arg in args if isinstance(arg, str)), call.__name__)
        if path in self.running:
            self.conflicts.append(path)
        self.running.append(path)
        await asyncio.sleep(0.02)
        result = await self._offload.thread(call, *args, **kwargs)
        await asyncio.sleep(0.02)
        self.running.remove(path)
        return result

    async def read(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._offload.read(call, *args, **kwargs)


@pytest.mark.parametrize("rounds", range(6))
def test_stop_waits_for_maintenance_and_writes_no_file_twice_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """`rounds` varies the moment of the stop."""
    monkeypatch.setattr(quorum_module, "SNAPSHOT_CHECK_S", 0.01)
    monkeypatch.setattr(quorum_module, "SAVE_COMMITTED_S", 0.0)

    async def main(world: World) -> None:
        threads = ObservedThreads(world.offload)
        settings = {"metadata.log.max.record.bytes.between.snapshots": 1}
        voter = SingleVoter(replace(world, offload=threads), tmp_path, settings)
        quorum = await voter.start()
        for number in range(3):
            await quorum.append((config(str(number)),))
        for _ in range(rounds):
            await asyncio.sleep(0.01)
        await voter.quorum.stop()
        assert threads.running == []
        assert threads.conflicts == []
        assert quorum._log.committed == quorum.high_watermark
        for task in voter.tasks:
            task.cancel()

    in_real_world(main)


def damage(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)
