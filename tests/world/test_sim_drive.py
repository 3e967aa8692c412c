"""Every fault of the simulated drive. Synced data always survives."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.world.sim import NodeCrashed, SimDisk, SimDrive

SEEDS = range(60)


def fresh(seed: int = 1) -> tuple[SimDrive, SimDisk]:
    drive = SimDrive(random.Random(seed))
    disk = SimDisk(drive)
    disk.make_dirs("/d")
    disk.sync_dir("/")
    return drive, disk


def after_power_loss(drive: SimDrive) -> SimDisk:
    drive.crash(power_loss=True)
    return SimDisk(drive)


def durable_file(disk: SimDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.pwrite(content, 0)
    file.sync()
    disk.sync_dir(path.rpartition("/")[0])


def test_a_killed_process_loses_nothing_but_its_open_files() -> None:
    drive, disk = fresh()
    file = disk.open("/d/a", create=True)
    file.pwrite(b"not synced", 0)
    drive.crash()
    for use in (
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        file.size,
        file.sync,
        lambda: file.truncate(0),
    ):
        with pytest.raises(NodeCrashed):
            use()
    for use_disk in (
        lambda: disk.exists("/d"),
        lambda: disk.replace("/d/x", b""),
        lambda: disk.list("/d"),
        lambda: disk.open("/d/a"),
    ):
        with pytest.raises(NodeCrashed):
            use_disk()
    file.close()
    assert SimDisk(drive).read("/d/a") == b"not synced"


def survivors(content: bytes) -> set[bytes]:
    """Return the contents that a power loss leaves, over many seeds, if `content` is appended
    without a sync to a durable file that holds b'old'."""
    contents = set()
    for seed in SEEDS:
        drive, disk = fresh(seed)
        durable_file(disk, "/d/a", b"old")
        disk.open("/d/a").pwrite(content, 3)
        contents.add(after_power_loss(drive).read("/d/a"))
    return contents


def test_an_unsynced_append_survives_is_lost_reads_as_zeros_or_is_torn() -> None:
    content = bytes(range(1, 251)) * 8
    contents = survivors(content)
    assert b"old" + content in contents
    assert b"old" in contents
    assert b"old" + bytes(2000) in contents
    prefixes = [
        data for data in contents if 3 < len(data) < 2003 and (b"old" + content).startswith(data)
    ]
    assert any(len(data) % 512 == 0 for data in prefixes), "torn at a sector"
    assert any(len(data) % 512 for data in prefixes), "torn inside a sector"
    assert any(
        len(data) == 2003 and data.endswith(bytes(10)) and content[:10] in data for data in contents
    ), "torn, followed by zeros"
    assert any(
        len(data) == 2003 and data[3:13] == bytes(10) and data.endswith(content[-10:])
        for data in contents
    ), "torn, preceded by zeros"
    assert all(data.startswith(b"old") for data in contents)


def test_an_unsynced_overwrite_may_leave_old_bytes() -> None:
    contents = set()
    for seed in SEEDS:
        drive, disk = fresh(seed)
        durable_file(disk, "/d/a", b"o" * 100)
        disk.open("/d/a").pwrite(b"n" * 50, 25)
        contents.add(after_power_loss(drive).read("/d/a"))
    assert {b"o" * 100, b"o" * 25 + b"n" * 50 + b"o" * 25} < contents
    assert all(len(data) == 100 and set(data) <= set(b"no") for data in contents)


def test_an_unsynced_truncate_may_be_undone() -> None:
    contents = set()
    for seed in SEEDS:
        drive, disk = fresh(seed)
        durable_file(disk, "/d/a", b"content")
        disk.open("/d/a").truncate(3)
        contents.add(after_power_loss(drive).read("/d/a"))
    assert contents == {b"con", b"content"}


def test_a_synced_file_in_an_unsynced_directory_may_be_lost() -> None:
    contents = set()
    for seed in SEEDS:
        drive, disk = fresh(seed)
        file = disk.open("/d/a", create=True)
        file.pwrite(b"synced", 0)
        file.sync()
        disk = after_power_loss(drive)
        contents.add(disk.read("/d/a") if disk.exists("/d/a") else None)
    assert contents == {b"synced", None}


def test_a_prefix_of_the_unsynced_name_changes_survives() -> None:
    contents = set()
    for seed in SEEDS:
        drive, disk = fresh(seed)
        durable_file(disk, "/d/old", b"")
        disk.make_dirs("/e")
        disk.open("/e/new", create=True)
        disk.rename("/d/old", "/e/moved")
        disk.remove("/e/new")
        disk = after_power_loss(drive)
        contents.add(
            (tuple(disk.list("/d")), tuple(disk.list("/e")) if disk.exists("/e") else None)
        )
    assert contents == {
        (("old",), None),
        (("old",), ()),
        (("old",), ("new",)),
        ((), ("moved", "new")),
        ((), ("moved",)),
    }


def test_a_renamed_directory_can_be_synced_under_its_new_name() -> None:
    for seed in SEEDS:
        drive, disk = fresh(seed)
        disk.make_dirs("/d/topic-0")
        disk.open("/d/topic-0/log", create=True)
        disk.rename("/d/topic-0", "/d/topic-0.stray")
        disk.sync_dir("/d/topic-0.stray")
        disk = after_power_loss(drive)
        name = "/d/topic-0.stray" if disk.exists("/d/topic-0.stray") else "/d/topic-0"
        assert disk.list(name) == ["log"]


def test_a_rename_without_a_sync_of_the_data_may_leave_an_empty_file() -> None:
    contents = set()
    for seed in SEEDS:
        drive, disk = fresh(seed)
        durable_file(disk, "/d/a", b"old")
        disk.open("/d/a.tmp", create=True).pwrite(b"new", 0)
        disk.rename("/d/a.tmp", "/d/a")
        disk.sync_dir("/d")
        contents.add(after_power_loss(drive).read("/d/a"))
    assert {b"new", b"", bytes(3)} <= contents


@pytest.mark.parametrize("power_loss", [False, True])
def test_replace_leaves_the_old_or_the_new_file_wherever_it_is_stopped(power_loss: bool) -> None:
    outcomes = []
    for changes in range(12):
        for seed in range(12):
            drive, disk = fresh(seed)
            disk.replace("/d/a", b"the old one")
            drive.stop_after(changes)
            try:
                disk.replace("/d/a", b"the newer one")
                done = True
            except NodeCrashed:
                done = False
            drive.crash(power_loss=power_loss)
            content = SimDisk(drive).read("/d/a")
            assert content == b"the newer one" or (not done and content == b"the old one")
            outcomes.append((content, done))
    assert set(outcomes) == {
        (b"the old one", False),
        (b"the newer one", False),
        (b"the newer one", True),
    }


def test_a_missing_sync_is_noticed() -> None:
    """With a drive that ignores syncs, the test above would fail."""
    broken = 0
    for seed in SEEDS:
        drive, disk = fresh(seed)
        drive.ignore_sync = True
        disk.replace("/d/a", b"content")
        disk = after_power_loss(drive)
        broken += not disk.exists("/d/a") or disk.read("/d/a") != b"content"
    assert broken > len(SEEDS) // 4


def test_a_full_disk_writes_a_prefix_or_nothing_and_recovers() -> None:
    left = set()
    for seed in SEEDS:
        drive, disk = fresh(seed)
        drive.capacity_bytes = 10
        file = disk.open("/d/a", create=True)
        file.pwrite(b"12345", 0)
        with pytest.raises(OSError, match="No space left") as caught:
            file.pwrite(b"abcdefghi", 5)
        assert caught.value.errno == errno.ENOSPC
        left.add(file.pread(100, 0))
        assert file.pwrite(b"54321", 0) == 5, "existing bytes can be overwritten"
        file.truncate(0)
        assert file.pwrite(b"0123456789", 0) == 10
        with pytest.raises(OSError, match="No space left"):
            disk.open("/d/b", create=True)
        with pytest.raises(OSError, match="No space left"):
            file.truncate(11)
        drive.capacity_bytes = 100
        disk.open("/d/b", create=True)
    assert {b"12345", b"12345abcde"} < left
    assert all(b"12345abcde".startswith(data) for data in left)


def test_injected_errors_apply_to_their_paths_operations_and_times() -> None:
    drive, disk = fresh()
    disk.make_dirs("/e")
    here, there = disk.open("/d/a", create=True), disk.open("/e/a", create=True)
    drive.fail("/d", {"pwrite", "pread", "sync_dir"}, errno.EIO, times=2)
    drive.fail("/e/a", {"sync"}, errno.EROFS)
    there.pwrite(b"x", 0)
    with pytest.raises(OSError, match="injected") as caught:
        here.pread(1, 0)
    assert caught.value.errno == errno.EIO
    with pytest.raises(OSError, match="injected"):
        disk.sync_dir("/d")
    here.pwrite(b"x", 0)
    for _ in range(3):
        with pytest.raises(OSError, match="injected"):
            there.sync()
    drive.heal()
    there.sync()
    with pytest.raises(ValueError, match="unknown disk operations"):
        drive.fail("/d", {"pwriet"})


def test_a_failed_sync_loses_data_for_good() -> None:
    """Later syncs succeed, but the data is lost: retrying a failed sync is wrong (rule 22)."""
    lost = kept = 0
    for seed in SEEDS:
        drive, disk = fresh(seed)
        durable_file(disk, "/d/a", b"")
        file = disk.open("/d/a")
        file.pwrite(b"content", 0)
        drive.fail("/d/a", {"sync"}, times=1)
        with pytest.raises(OSError, match="injected"):
            file.sync()
        assert file.pread(7, 0) == b"content", "the page cache still shows it"
        file.sync()
        if seed % 2:
            drive.evict()
        else:
            disk = after_power_loss(drive)
        content = disk.read("/d/a")
        assert content in (b"", b"content")
        lost += content == b""
        kept += content != b""
    assert lost > 5
    assert kept > 5


def test_a_flipped_bit_stays_flipped() -> None:
    drive, disk = fresh()
    durable_file(disk, "/d/a", b"abc")
    drive.flip_bit("/d/a", 1, 0)
    assert disk.read("/d/a") == b"acc"
    assert after_power_loss(drive).read("/d/a") == b"acc"
    with pytest.raises(ValueError, match="no bit"):
        drive.flip_bit("/d/a", 3, 0)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["write", "truncate", "sync"]), st.integers(0, 3000), st.integers(0, 1500)
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), changes=CHANGES)
def test_synced_bytes_survive_unless_changed_later(
    seed: int, changes: list[tuple[str, int, int]]
) -> None:
    drive, disk = fresh(seed)
    durable_file(disk, "/d/a", b"")
    file = disk.open("/d/a")
    synced, changed = b"", set[int]()
    for number, (kind, position, length) in enumerate(changes, 1):
        if kind == "write":
            file.pwrite(bytes([number]) * length, position)
            changed |= set(range(position, position + length))
        elif kind == "truncate":
            file.truncate(position)
            changed |= set(range(position, 10_000))
        else:
            file.sync()
            synced, changed = file.pread(10_000, 0), set()
    content = after_power_loss(drive).read("/d/a")
    assert all(
        content[position : position + 1] == synced[position : position + 1]
        for position in range(len(synced))
        if position not in changed
    )
    if not changed:
        assert content == synced


def test_large_files_survive_after_a_sync() -> None:
    drive, disk = fresh()
    file = disk.open("/d/a", create=True)
    for number in range(64):
        file.pwrite(bytes([number]) * 65_536, number * 65_536)
    file.sync()
    disk.sync_dir("/d")
    content = after_power_loss(drive).read("/d/a")
    assert len(content) == 64 * 65_536
    assert content[-1] == 63
