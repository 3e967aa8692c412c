"""Snapshots between the nodes of a simulated quorum: installed, damaged, long (rules 17, 18, 20
and 25)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from functools import partial

import pytest

from penstock.errors import KafkaError
from penstock.log.directory import TooManyFiles
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.quorum import quorum as quorum_module
from penstock.node.quorum.quorum import Quorum
from penstock.node.quorum.snapshot_download import SnapshotDownloads
from penstock.node.quorum.snapshot_store import SnapshotStore
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import FetchSnapshot
from penstock.sim.quorum.node import Listener
from penstock.world import File
from tests.node.simulated_quorum import (
    OBSERVER,
    RESOURCE,
    SimulatedQuorum,
    setting,
    settings_of,
)

# A snapshot every few records.
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": 400,
    "metadata.log.segment.bytes": 2_000,
    "metadata.max.retention.bytes": 0,
}


async def try_to_append(quorum: Quorum, name: str) -> None:
    """Append a setting. The quorum may lose its leader before it is committed."""
    try:
        async with asyncio.timeout(0.5):
            await quorum.append(setting(name))
    except (KafkaError, TimeoutError):
        return


def test_uncommitted_records_are_not_applied_while_a_snapshot_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader is isolated while it applies a long image. Its uncommitted records are replaced by a
    snapshot of the next leader before it has finished."""
    monkeypatch.setattr(quorum_module, "PUBLISH_PAUSE_S", 0.004)
    members = SimulatedQuorum(11, SMALL)
    applied: set[str] = set()
    busy: set[int] = set()

    def on_applied(node_id: int, image: MetadataImage, _delta: MetadataDelta) -> Iterator[None]:
        applied.update(image.configs.get(RESOURCE, {}))
        while node_id in busy:
            yield

    async def main() -> None:
        for node_id in (1, 2, 3):
            members.listeners[node_id] = Listener(partial(on_applied, node_id))
        members.start(1, 2, 3)
        old = await members.active()
        await old.append(setting("short"))
        busy.add(old.node_id)
        await try_to_append(old, "long")
        others = [node_id for node_id in (1, 2, 3) if node_id != old.node_id]
        members.simulation.network.partition(
            [f"c{old.node_id}"], [f"c{node_id}" for node_id in others]
        )
        await asyncio.gather(*(try_to_append(old, f"uncommitted.{number}") for number in range(3)))
        assert old.high_watermark < old.log_end_offset
        await members.until(lambda: any(members.quorums[other].is_leader for other in others))
        new = next(members.quorums[other] for other in others if members.quorums[other].is_leader)
        number = 0
        while new._log.start_offset <= old.log_end_offset:
            await new.append(setting(f"new.{number}"))
            await asyncio.sleep(0.1)
            number += 1
        load = old._log.snapshots.load

        async def slow_load(snapshot: OffsetAndEpoch) -> MetadataImage:
            busy.clear()
            await asyncio.sleep(1.0)
            return await load(snapshot)

        monkeypatch.setattr(old._log.snapshots, "load", slow_load)
        members.simulation.network.heal()
        await members.until(lambda: settings_of(old) == settings_of(new))
        assert not busy

    members.simulation.run(main())
    assert "long" in applied
    assert applied.isdisjoint({f"uncommitted.{number}" for number in range(3)})


# Too many open files


def test_nodes_wait_for_descriptors_to_write_fetch_and_load_snapshots() -> None:
    """Too many open files are no disk failure, and no reason for a node to stop."""
    members = SimulatedQuorum(13, SMALL)

    async def main() -> None:
        members.start(1, 2, 3)
        leader = await members.active()
        faults = [
            members.node(node_id).drive.fail(
                "/d/__cluster_metadata-0/00", {"open"}, errno.EMFILE, times=5
            )
            for node_id in (1, 2, 3)
        ]
        number, refused = 0, 0
        while len(leader._log.snapshots.all) < 2 or leader._log.start_offset == 0:
            try:
                await leader.append(setting(f"n.{number}"))
            except TooManyFiles:
                refused += 1
            await asyncio.sleep(0.1)
            number += 1
            assert members.errors == {}
        assert refused < number
        assert [fault.times for fault in faults] == [0, 0, 0]
        members.format(OBSERVER)
        drive = members.node(OBSERVER).drive
        members.start(OBSERVER)
        await members.until(lambda: OBSERVER in members.quorums)
        drive.fail("/d/__cluster_metadata-0/00", {"open"}, errno.EMFILE, times=5)
        await until_observed(members, leader)

    members.simulation.run(main())


# Damaged snapshots


async def leader_with_snapshots(members: SimulatedQuorum) -> Quorum:
    """Start the voters. Return the leader when its log starts at a snapshot."""
    members.start(1, 2, 3)
    leader = await members.active()
    number = 0
    while len(leader._log.snapshots.all) < 2 or leader._log.start_offset == 0:
        await leader.append(setting(f"n.{number}"))
        await asyncio.sleep(0.1)
        number += 1
    return leader


async def until_observed(members: SimulatedQuorum, leader: Quorum) -> None:
    """Return when the observer has all metadata; fail if a node has failed."""

    def is_done() -> bool:
        observer = members.quorums.get(OBSERVER)
        has_all = observer is not None and settings_of(observer) == settings_of(leader)
        return has_all or bool(members.errors)

    await members.until(is_done)
    assert members.errors == {}


@pytest.mark.parametrize("damaged", ["latest", "all"])
# In the CRC of the header, in the middle, and in the footer.
@pytest.mark.parametrize("position", [20, 150, -1])
def test_flipped_bit_in_the_leaders_snapshot_harms_no_other_node(
    damaged: str, position: int
) -> None:
    """The previous snapshot is used, or a new one that the leader writes."""
    members = SimulatedQuorum(5, SMALL)

    async def main() -> None:
        leader = await leader_with_snapshots(members)
        snapshots, node = leader._log.snapshots, members.node(leader.node_id)
        for snapshot in snapshots.all[-1:] if damaged == "latest" else snapshots.all:
            path = snapshots.path(snapshot)
            node.drive.flip_bit(path, position % node.world.disk.size(path), 3)
        members.start(OBSERVER)
        await until_observed(members, leader)
        members.kill(OBSERVER)
        members.node(OBSERVER).restart()
        members.format(OBSERVER)
        members.start(OBSERVER)
        await until_observed(members, leader)

    members.simulation.run(main())


def test_leader_whose_only_snapshot_is_damaged_and_current_writes_it_again() -> None:
    members = SimulatedQuorum(5, SMALL)

    async def main() -> None:
        leader = await leader_with_snapshots(members)
        snapshots, node = leader._log.snapshots, members.node(leader.node_id)
        await leader._snapshots.generate()
        for snapshot in snapshots.all:
            node.drive.flip_bit(snapshots.path(snapshot), 150, 3)
        latest = snapshots.latest
        members.start(OBSERVER)
        await until_observed(members, leader)
        assert snapshots.all[-1] == latest
        await snapshots.check(snapshots.all[-1])

    members.simulation.run(main())


def test_snapshot_that_was_damaged_on_its_way_is_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = SimulatedQuorum(5, SMALL)
    damaged = 0

    async def main() -> None:
        leader = await leader_with_snapshots(members)
        read = leader._log.snapshots.read

        async def flipping(snapshot: OffsetAndEpoch, *args: int) -> tuple[int, bytes]:
            nonlocal damaged
            size, data = await read(snapshot, *args)
            if damaged < 3:
                damaged += 1
                data = data[:150] + bytes([data[150] ^ 1]) + data[151:]
            return size, data

        monkeypatch.setattr(leader._log.snapshots, "read", flipping)
        members.start(OBSERVER)
        await until_observed(members, leader)
        files = members.node(OBSERVER).world.disk.list("/d/__cluster_metadata-0")
        assert not [name for name in files if name.endswith(".part")]

    members.simulation.run(main())
    assert damaged == 3


def test_snapshot_that_is_damaged_before_it_is_installed_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = SimulatedQuorum(5, SMALL)
    finish = SnapshotStore.finish
    damaged: list[str] = []

    async def damaging(store: SnapshotStore, snapshot: OffsetAndEpoch, part: File) -> None:
        await finish(store, snapshot, part)
        if store is members.quorums[OBSERVER]._log.snapshots and not damaged:
            damaged.append(store.path(snapshot))
            members.node(OBSERVER).drive.flip_bit(damaged[0], 150, 3)

    async def main() -> None:
        leader = await leader_with_snapshots(members)
        monkeypatch.setattr(SnapshotStore, "finish", damaging)
        members.start(OBSERVER)
        await until_observed(members, leader)

    members.simulation.run(main())
    assert damaged


# Long snapshots

LONG = {
    "metadata.log.max.record.bytes.between.snapshots": 2_000_000,
    "metadata.log.segment.bytes": 1_000_000,
    "metadata.max.retention.bytes": 0,
}


async def leader_of_a_lagging_voter(members: SimulatedQuorum) -> tuple[Quorum, int, int]:
    """Return the leader, a voter that is down and needs a snapshot of 7 MB, and the third voter.
    Packets take 70 ms."""
    members.start(1, 2, 3)
    leader = await members.active()
    lagging, third = (node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
    members.kill(lagging)
    for number in range(12):
        records = [setting(f"{number}.{each}", 30_000)[0] for each in range(20)]
        await leader.append(tuple(records))
        await asyncio.sleep(1.2)
    snapshots = leader._log.snapshots
    (size, _data) = await snapshots.read(snapshots.all[-1], 0, 0)
    assert size > 5_000_000
    assert leader._log.start_offset > 0
    members.simulation.network.delay_s = (0.06, 0.08)
    return leader, lagging, third


def test_quorum_recovers_while_a_voter_fetches_a_long_snapshot() -> None:
    """Only the leader and the lagging voter are left. The download takes longer than the leader
    waits for fetches."""
    members = SimulatedQuorum(21, LONG)

    async def main() -> None:
        leader, lagging, third = await leader_of_a_lagging_voter(members)
        epoch = leader.epoch
        members.kill(third)
        members.start(lagging)
        await members.until(lambda: lagging in members.quorums)
        await leader.append(setting("after"))
        await members.until(lambda: "after" in settings_of(members.quorums[lagging]))
        assert leader.epoch == epoch

    members.simulation.run(main())


def test_interrupted_download_continues_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    members = SimulatedQuorum(21, LONG)
    positions: list[int] = []
    fetch_piece = SnapshotDownloads._fetch_piece

    async def main() -> None:
        leader, lagging, _third = await leader_of_a_lagging_voter(members)

        async def interrupted(
            downloads: SnapshotDownloads, effect: FetchSnapshot, position: int, max_bytes: int
        ) -> object:
            positions.append(position)
            if len(positions) % 5 == 0:
                members.simulation.network.cut(f"c{leader.node_id}", f"c{lagging}")
            return await fetch_piece(downloads, effect, position, max_bytes)

        monkeypatch.setattr(SnapshotDownloads, "_fetch_piece", interrupted)
        members.start(lagging)
        await members.until(lambda: lagging in members.quorums)
        await members.until(lambda: settings_of(members.quorums[lagging]) == settings_of(leader))

    members.simulation.run(main())
    assert positions.count(0) > 3, "it was interrupted, and compared the first bytes"
    resumed = [position for position in positions if position > 0]
    assert resumed == sorted(resumed)
    assert len(resumed) < 45, "a piece was fetched again only if its response was lost"


def test_download_starts_over_if_the_leader_wrote_the_snapshot_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = SimulatedQuorum(21, LONG)
    positions: list[int] = []
    fetch_piece = SnapshotDownloads._fetch_piece

    async def main() -> None:
        leader, lagging, _third = await leader_of_a_lagging_voter(members)
        snapshots = leader._log.snapshots

        async def interrupted(
            downloads: SnapshotDownloads, effect: FetchSnapshot, position: int, max_bytes: int
        ) -> object:
            positions.append(position)
            if len(positions) == 5:
                image = await snapshots.load(effect.snapshot)
                await snapshots.write(image, effect.snapshot, 4711)
                members.simulation.network.cut(f"c{leader.node_id}", f"c{lagging}")
            return await fetch_piece(downloads, effect, position, max_bytes)

        monkeypatch.setattr(SnapshotDownloads, "_fetch_piece", interrupted)
        members.start(lagging)
        await members.until(lambda: lagging in members.quorums)
        await members.until(lambda: settings_of(members.quorums[lagging]) == settings_of(leader))

    members.simulation.run(main())
    assert positions[5:7] == [0, 0], "the first bytes differ"
