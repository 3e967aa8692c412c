"""Swapping compacted segments for their source segments, so that a crash at any point leaves the
old or the new ones.

The order of renames makes it safe; a power failure keeps a prefix of them, as journalling file
systems do:

1. the `.cleaned` files of the indexes become `.swap`, then that of the log: from then on the new
   segment is valid;
2. the old files become `.deleted`;
3. the `.swap` files of the indexes get their final names, then that of the log.

At the next start, a `.swap` of a log means that steps 2 and 3 must be finished. The last batch of
the new segment, which compaction keeps (empty if necessary), shows which segments it replaces. A
`.swap` of an index alone, like `.cleaned`, was left before step 1 completed, and is removed.
"""

from __future__ import annotations

from penstock.log import names
from penstock.log.files import OpenFiles
from penstock.log.scanning import scan_headers
from penstock.world import Disk

# The log is last in both steps.
_KINDS = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX, names.LOG)


def swap_in(files: OpenFiles, path: str, base: int, end: int, unique: str) -> list[str]:
    """Replace the segments from one offset to another (the base offset of the next segment) by the
    compacted one, synchronously. Return the renamed files of the old ones; `unique` distinguishes
    them from those of an earlier compaction."""
    disk = files.disk
    old = _names_between(disk, path, base, end)  # it may fail, and the renames must not stop midway
    for kind in _KINDS:
        name = f"{path}/{names.segment_file(base, kind)}"
        disk.rename(name + names.CLEANED, name + names.SWAP)
    removed = []
    for name in old:
        files.forget(f"{path}/{name}")
        removed.append(f"{path}/{name}.{unique}{names.DELETED}")
        disk.rename(f"{path}/{name}", removed[-1])
    _bring_in(disk, path, base)
    return removed


def _names_between(disk: Disk, path: str, base: int, end: int) -> list[str]:
    """Return the files of the segments from one offset up to another, and the producer snapshots
    after the first of them."""
    found = [(name, names.parse_segment_file(name)) for name in disk.list(path)]
    return [
        name
        for name, parsed in found
        if parsed is not None
        and (base < parsed[0] < end or (parsed[0] == base and parsed[1] != names.SNAPSHOT))
    ]


def _bring_in(disk: Disk, path: str, base: int) -> None:
    for kind in _KINDS:
        name = f"{path}/{names.segment_file(base, kind)}"
        if disk.exists(name + names.SWAP):
            disk.rename(name + names.SWAP, name)


def finish_swaps(disk: Disk, path: str) -> list[str]:
    """Finish the swaps that a crash interrupted. Return a log line for each."""
    notes = []
    swaps = [name for name in disk.list(path) if name.endswith(names.SWAP)]
    for name in swaps:
        parsed = names.parse_segment_file(name.removesuffix(names.SWAP))
        if parsed is None or parsed[1] != names.LOG:
            continue
        end = _end_offset(disk, f"{path}/{name}", parsed[0])
        _catch_up_indexes(disk, path, parsed[0])
        for old in _names_between(disk, path, parsed[0], end):
            # An index without a .swap file is the new one already.
            if (
                parsed[0] != _base_of(old)
                or old.endswith(names.LOG)
                or disk.exists(f"{path}/{old}{names.SWAP}")
            ):
                disk.remove(f"{path}/{old}")
        _bring_in(disk, path, parsed[0])
        notes.append(f"{path}: finished the compaction of the offsets from {parsed[0]} to {end}")
    for name in swaps:
        if disk.exists(f"{path}/{name}"):
            disk.remove(f"{path}/{name}")
    if swaps:
        disk.sync_dir(path)
    return notes


def _catch_up_indexes(disk: Disk, path: str, base: int) -> None:
    """Rename the `.cleaned` files of indexes. Apache Kafka renames the log first."""
    for kind in _KINDS:
        name = f"{path}/{names.segment_file(base, kind)}"
        if disk.exists(name + names.CLEANED):
            disk.rename(name + names.CLEANED, name + names.SWAP)


def _base_of(name: str) -> int:
    parsed = names.parse_segment_file(name)
    return -1 if parsed is None else parsed[0]


def _end_offset(disk: Disk, log: str, base: int) -> int:
    file = disk.open(log)
    try:
        end = base
        for _position, header in scan_headers(file, 0, file.size()):
            end = header.next_offset
        return end
    finally:
        file.close()
