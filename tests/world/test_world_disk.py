"""Disk: the real and the simulated one behave alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.world import Disk
from penstock.world.real import RealDisk


def test_a_file_is_written_and_read_at_positions(disk: Disk, base: str) -> None:
    file = disk.open(f"{base}/a", create=True)
    assert file.pwrite(b"hello world", 0) == 11
    assert file.pwrite(memoryview(b"-----W")[5:], 6) == 1
    assert file.pwrite(bytearray(b"!"), 11) == 1
    assert file.pread(5, 6) == b"World"
    assert file.pread(100, 10) == b"d!"
    assert file.pread(5, 100) == b""
    assert file.pread(0, 0) == b""
    assert file.size() == disk.size(f"{base}/a") == 12
    file.sync()
    file.close()
    assert disk.read(f"{base}/a") == b"hello World!"


def test_a_write_beyond_the_end_leaves_zeros(disk: Disk, base: str) -> None:
    file = disk.open(f"{base}/a", create=True)
    file.pwrite(b"x", 5)
    assert file.pread(10, 0) == b"\0\0\0\0\0x"
    assert file.pwrite(b"", 100) == 0
    assert file.size() == 6


def test_truncate_cuts_and_grows(disk: Disk, base: str) -> None:
    file = disk.open(f"{base}/a", create=True)
    file.pwrite(b"abcdef", 0)
    file.truncate(2)
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"


def test_open_needs_an_existing_file_without_create(disk: Disk, base: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{base}/a")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{base}/absent/a", create=True)
    with pytest.raises(IsADirectoryError):
        disk.open(base, create=True)
    disk.open(f"{base}/a", create=True).pwrite(b"kept", 0)
    assert disk.open(f"{base}/a", create=True).pread(4, 0) == b"kept"
    with pytest.raises(NotADirectoryError):
        disk.open(f"{base}/a/b", create=True)


def test_negative_positions_are_refused(disk: Disk, base: str) -> None:
    file = disk.open(f"{base}/a", create=True)
    with pytest.raises(OSError, match="Invalid argument"):
        file.pread(1, -1)
    with pytest.raises(OSError, match="Invalid argument"):
        file.pwrite(b"x", -1)
    with pytest.raises(OSError, match="Invalid argument"):
        file.truncate(-1)


def test_a_closed_file_refuses_every_call(disk: Disk, base: str) -> None:
    file = disk.open(f"{base}/a", create=True)
    file.close()
    file.close()
    for use in (
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        file.size,
        file.sync,
        file.fileno,
        lambda: file.truncate(0),
    ):
        with pytest.raises(OSError, match=r"closed|no descriptor"):
            use()


def test_directories_are_created_and_listed_in_order(disk: Disk, base: str) -> None:
    disk.make_dirs(f"{base}/x/y")
    disk.make_dirs(f"{base}/x/y")
    for name in ("b", "a", "c"):
        disk.open(f"{base}/x/{name}", create=True)
    assert disk.list(f"{base}/x") == ["a", "b", "c", "y"]
    assert disk.is_dir(f"{base}/x/y")
    assert not disk.is_dir(f"{base}/x/a")
    assert not disk.is_dir(f"{base}/x/absent")
    assert disk.exists(f"{base}/x/a")
    assert disk.exists(f"{base}/x/y")
    assert not disk.exists(f"{base}/x/a/b")
    with pytest.raises(FileNotFoundError):
        disk.list(f"{base}/absent")
    with pytest.raises(NotADirectoryError):
        disk.list(f"{base}/x/a")
    with pytest.raises(FileExistsError):
        disk.make_dirs(f"{base}/x/a")


def test_rename_replaces_a_file_and_open_files_stay_usable(disk: Disk, base: str) -> None:
    old = disk.open(f"{base}/old", create=True)
    old.pwrite(b"old", 0)
    new = disk.open(f"{base}/new", create=True)
    new.pwrite(b"new!", 0)
    disk.rename(f"{base}/new", f"{base}/old")
    assert disk.list(base) == ["old"]
    assert disk.read(f"{base}/old") == b"new!"
    assert old.pread(10, 0) == b"old"
    new.pwrite(b"N", 0)
    assert disk.read(f"{base}/old") == b"New!"


def test_a_directory_is_renamed_with_its_content(disk: Disk, base: str) -> None:
    disk.make_dirs(f"{base}/a/b")
    disk.open(f"{base}/a/b/f", create=True).pwrite(b"x", 0)
    disk.make_dirs(f"{base}/empty")
    disk.rename(f"{base}/a", f"{base}/empty")
    assert disk.read(f"{base}/empty/b/f") == b"x"
    assert not disk.exists(f"{base}/a")


def test_impossible_renames_are_refused(disk: Disk, base: str) -> None:
    disk.make_dirs(f"{base}/d/e")
    disk.open(f"{base}/f", create=True)
    disk.make_dirs(f"{base}/full/x")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{base}/absent", f"{base}/g")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{base}/f", f"{base}/absent/g")
    with pytest.raises(IsADirectoryError):
        disk.rename(f"{base}/f", f"{base}/d")
    with pytest.raises(NotADirectoryError):
        disk.rename(f"{base}/d", f"{base}/f")
    with pytest.raises(OSError, match="not empty"):
        disk.rename(f"{base}/d", f"{base}/full")
    with pytest.raises(OSError, match="Invalid argument"):
        disk.rename(f"{base}/d", f"{base}/d/e/f")
    disk.rename(f"{base}/f", f"{base}/f")
    assert disk.list(base) == ["d", "f", "full"]


def test_remove_and_remove_tree(disk: Disk, base: str) -> None:
    file = disk.open(f"{base}/a", create=True)
    file.pwrite(b"still here", 0)
    disk.remove(f"{base}/a")
    assert not disk.exists(f"{base}/a")
    assert file.pread(10, 0) == b"still here"
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{base}/a")
    disk.make_dirs(f"{base}/d/e")
    disk.open(f"{base}/d/e/f", create=True)
    with pytest.raises(IsADirectoryError):
        disk.remove(f"{base}/d")
    disk.remove_tree(f"{base}/d")
    assert disk.list(base) == []
    with pytest.raises(FileNotFoundError):
        disk.remove_tree(f"{base}/d")


def test_replace_leaves_one_whole_file(disk: Disk, base: str) -> None:
    disk.replace(f"{base}/checkpoint", b"a long first content")
    disk.open(f"{base}/checkpoint.tmp", create=True).pwrite(
        b"left by a crash, and longer than the new content", 0
    )
    disk.replace(f"{base}/checkpoint", b"second")
    assert disk.read(f"{base}/checkpoint") == b"second"
    assert disk.list(base) == ["checkpoint"]
    with pytest.raises(FileNotFoundError):
        disk.replace(f"{base}/absent/checkpoint", b"")


def test_modified_ms_is_the_time_of_the_last_change(disk: Disk, base: str) -> None:
    disk.open(f"{base}/a", create=True).pwrite(b"x", 0)
    assert disk.modified_ms(f"{base}/a") >= 1_700_000_000_000
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(f"{base}/b")


def test_directories_can_be_synced(disk: Disk, base: str) -> None:
    disk.sync_dir(base)
    with pytest.raises(FileNotFoundError):
        disk.sync_dir(f"{base}/absent")
    disk.open(f"{base}/a", create=True)
    with pytest.raises(NotADirectoryError):
        disk.sync_dir(f"{base}/a")


def test_threads_that_replace_the_same_file_take_turns(tmp_path: Path) -> None:
    """They share the temporary file: the second rename would not find it."""
    disk, path = RealDisk(), str(tmp_path / "a")
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(disk.replace, path, str(number).encode()) for number in range(80)]
    for call in calls:
        call.result()
    assert int(disk.read(path)) in range(80)
    assert disk.list(str(tmp_path)) == ["a"]
