"""Faults that protocol and disk events trigger."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable

import pytest

from penstock.world.sim import (
    Frame,
    Node,
    NodeCrashed,
    SimDisk,
    SimDrive,
    Simulation,
    file_kind,
)
from penstock.world.sim.frames import FrameReader
from penstock.world.sim.kinds import (
    CHECKPOINT,
    INDEX,
    META_PROPERTIES,
    METADATA_SNAPSHOT,
    OTHER,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    QUORUM_STATE,
    SEGMENT,
)
from tests.world.test_sim_network import Cluster, play

PRODUCE, FETCH = 0, 1


def request(api_key: int, correlation_id: int, body: bytes = b"", version: int = 7) -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api_key, version, correlation_id) + body


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


class Log(list[str]):
    """Notes what happened in which order."""

    def note(self, text: str) -> Callable[..., None]:
        return lambda *_: self.append(text)


# Frames


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 11, 12, 13, 40, 1000])
def test_frames_are_found_however_the_bytes_are_divided(piece: int) -> None:
    apis: dict[int, tuple[int, int]] = {}
    requests = FrameReader("a", "b", apis, is_request=True)
    responses = FrameReader("b", "a", apis, is_request=False)

    def read(reader: FrameReader, data: bytes) -> list[tuple[int, Frame]]:
        return [
            found
            for at in range(0, len(data), piece)
            for found in reader.read(data[at : at + piece])
        ]

    sent = request(PRODUCE, 1) + request(FETCH, 2, bytes(100), version=9) + request(PRODUCE, 3)
    assert read(requests, sent) == [
        (0, Frame("a", "b", True, PRODUCE, 7, 12)),
        (12, Frame("a", "b", True, FETCH, 9, 112)),
        (124, Frame("a", "b", True, PRODUCE, 7, 12)),
    ]
    assert read(responses, response(2, bytes(50)) + response(1) + response(99)) == [
        (0, Frame("b", "a", False, FETCH, 9, 58)),
        (58, Frame("b", "a", False, PRODUCE, 7, 8)),
        (66, Frame("b", "a", False, -1, -1, 8)),
    ]


def test_a_connection_without_frames_is_ignored() -> None:
    reader = FrameReader("a", "b", {}, is_request=True)
    assert reader.read(b"GET / HTTP/1.1\r\n\r\n") == []
    assert reader.read(request(FETCH, 1)) == []


def test_a_trigger_fires_at_the_nth_request_of_an_api_between_two_nodes() -> None:
    async def scenario(cluster: Cluster) -> None:
        log = Log()
        await cluster.b.run(listen(cluster))
        await cluster.a.run(connect(cluster))
        cluster.fabric.on_frame(log.note("fetch 2"), api_key=FETCH, source="a", nth=2)
        cluster.fabric.on_frame(log.note("any 3"), target="b", nth=3)
        cluster.fabric.on_frame(log.note("from b"), source="b")
        forgotten = cluster.fabric.on_frame(log.note("forgotten"), api_key=FETCH, nth=3)
        cluster.fabric.forget(forgotten)
        for number, api_key in enumerate((FETCH, PRODUCE, FETCH, FETCH, FETCH)):
            cluster.client.transport.write(request(api_key, number))
            log.append(f"wrote {api_key}")
            await asyncio.sleep(0)
        assert log == ["wrote 1", "wrote 0", "wrote 1", "any 3", "fetch 2", "wrote 1", "wrote 1"]

    play(scenario)


async def listen(cluster: Cluster) -> None:
    await cluster.b.world.network.listen(lambda: cluster.server, "", 9092)


async def connect(cluster: Cluster) -> None:
    await cluster.a.world.network.connect(lambda: cluster.client, "b", 9092)


def test_a_trigger_runs_after_the_callback_that_wrote_the_request_and_before_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        log = Log()
        await cluster.b.run(listen(cluster))
        await cluster.a.run(connect(cluster))
        cluster.fabric.on_frame(log.note("trigger"), api_key=FETCH)
        loop = asyncio.get_running_loop()

        def write() -> None:
            cluster.client.transport.write(request(FETCH, 1))
            log.append("written")

        loop.call_soon(write)
        loop.call_soon(log.note("another callback"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert log == ["written", "trigger", "another callback"]

    play(scenario)


@pytest.mark.parametrize(("after_bytes", "received"), [(20, 20), (-1, 108), (10**9, 108)])
def test_a_trigger_fires_in_the_middle_of_a_response(after_bytes: int, received: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.b.run(listen(cluster))
        await cluster.a.run(connect(cluster))
        cluster.client.transport.write(request(FETCH, 1) + request(PRODUCE, 2))
        await asyncio.sleep(1)
        seen: list[int] = []
        cluster.fabric.on_frame(
            lambda _frame: seen.append(len(cluster.client.data)),
            response=True,
            api_key=FETCH,
            after_bytes=after_bytes,
            hold_s=3.0,
        )
        answer = response(1, bytes(100))
        for part in (answer[:6], answer[6:50], answer[50:] + response(2, bytes(10))):
            cluster.server.transport.write(part)
        await asyncio.sleep(2)
        assert seen == [received]
        assert len(cluster.client.data) == received, "the rest is held back"
        await asyncio.sleep(3)
        assert len(cluster.client.data) == 108 + 18
        assert seen == [received]

    for seed in range(10):
        play(scenario, seed)


def test_a_node_can_crash_in_the_middle_of_its_own_response() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.b.run(listen(cluster))
        await cluster.a.run(connect(cluster))
        cluster.client.transport.write(request(FETCH, 1))
        await asyncio.sleep(1)
        cluster.fabric.on_frame(
            lambda _frame: cluster.b.crash(power_loss=True),
            response=True,
            after_bytes=20,
            hold_s=0.1,
        )
        cluster.server.transport.write(response(1, bytes(100)))
        await asyncio.sleep(1)
        assert not cluster.b.alive
        assert len(cluster.client.data) == 20

    play(scenario)


# Files


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/d0/t-0/00000000000000000000.log", SEGMENT),
        ("/d0/t-0/00000000000000000000.log.cleaned", SEGMENT),
        ("/d0/t-0/00000000000000000000.index", INDEX),
        ("/d0/t-0/00000000000000000000.timeindex", INDEX),
        ("/d0/t-0/00000000000000000000.txnindex", INDEX),
        ("/d0/t-0/00000000000000000123.snapshot", PRODUCER_SNAPSHOT),
        ("/d0/__cluster_metadata-0/00000000000000000123-0000000002.checkpoint", METADATA_SNAPSHOT),
        (
            "/d0/__cluster_metadata-0/00000000000000000123-0000000002.checkpoint.part",
            METADATA_SNAPSHOT,
        ),
        ("/d0/t-0/leader-epoch-checkpoint", CHECKPOINT),
        ("/d0/replication-offset-checkpoint.tmp", CHECKPOINT),
        ("/d0/__cluster_metadata-0/quorum-state", QUORUM_STATE),
        ("/d0/meta.properties", META_PROPERTIES),
        ("/d0/t-0/partition.metadata", PARTITION_METADATA),
        ("/d0/.lock", OTHER),
    ],
)
def test_files_have_kinds(path: str, kind: str) -> None:
    assert file_kind(path) == kind


def drive_with_files() -> tuple[SimDrive, SimDisk]:
    drive = SimDrive(random.Random(1))
    disk = SimDisk(drive)
    disk.make_dirs("/d/t-0")
    for name in ("00.log", "00.index", "leader-epoch-checkpoint"):
        disk.open(f"/d/t-0/{name}", create=True).pwrite(b"0123456789", 0)
    return drive, disk


def test_a_drive_lists_its_files_by_kind() -> None:
    drive, _ = drive_with_files()
    assert drive.files(SEGMENT) == {"/d/t-0/00.log": 10}
    assert list(drive.files()) == [
        "/d/t-0/00.index",
        "/d/t-0/00.log",
        "/d/t-0/leader-epoch-checkpoint",
    ]


@pytest.mark.parametrize("synced", [True, False])
def test_a_cut_file_stays_cut(synced: bool) -> None:
    drive, disk = drive_with_files()
    file = disk.open("/d/t-0/00.log")
    if synced:
        file.sync()
    drive.cut("/d/t-0/00.log", 4)
    assert disk.read("/d/t-0/00.log") == b"0123"
    file.sync()
    disk.sync_dir("/d/t-0")
    disk.sync_dir("/d")
    disk.sync_dir("/")
    drive.crash(power_loss=True)
    assert SimDisk(drive).read("/d/t-0/00.log") == b"0123"
    with pytest.raises(ValueError, match="has 4 bytes"):
        drive.cut("/d/t-0/00.log", 5)


def test_a_disk_trigger_fires_at_the_nth_operation_on_a_kind_of_file() -> None:
    drive, disk = drive_with_files()
    log = Log()
    drive.on_operation(log.note("sync 2"), {"sync"}, kind=SEGMENT, nth=2)
    drive.on_operation(log.note("elsewhere"), {"sync"}, prefix="/elsewhere")
    for name in ("00.log", "00.index", "00.log", "00.log"):
        disk.open(f"/d/t-0/{name}").sync()
        log.append(name)
    assert log == ["00.log", "00.index", "sync 2", "00.log", "00.log"]
    with pytest.raises(ValueError, match="unknown disk operations"):
        drive.on_operation(log.note(""), {"flush"})


def test_a_node_can_lose_power_between_a_write_and_its_sync() -> None:
    """A file that is replaced keeps its old content, and nothing of the node runs after the
    trigger."""

    async def scenario(simulation: Simulation, node: Node) -> None:
        node.world.disk.make_dirs("/d")
        node.world.disk.replace("/d/quorum-state", b"old")
        node.world.disk.sync_dir("/")
        survived: list[str] = []

        async def replace() -> None:
            await node.world.offload.thread(
                node.world.disk.replace, "/d/quorum-state", b"a new vote"
            )
            survived.append("replace returned")

        node.drive.on_operation(
            lambda: node.crash(power_loss=True), {"sync"}, kind=QUORUM_STATE, instead=True
        )
        node.start(replace())
        await asyncio.sleep(1)
        assert not node.alive
        assert survived == []
        assert node.restart().disk.read("/d/quorum-state") == b"old"
        assert simulation.nodes["n1"].alive

    for seed in range(10):
        simulation = Simulation(seed)
        simulation.run(scenario(simulation, simulation.node("n1")))


def test_a_stopped_drive_refuses_everything_until_the_crash() -> None:
    drive, disk = drive_with_files()
    drive.on_operation(lambda: None, {"sync"}, instead=True)
    file = disk.open("/d/t-0/00.log")
    with pytest.raises(NodeCrashed):
        file.sync()
    with pytest.raises(NodeCrashed):
        file.pread(1, 0)
    drive.crash()
    assert SimDisk(drive).read("/d/t-0/00.log") == b"0123456789"
