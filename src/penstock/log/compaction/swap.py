"""Putting compacted segments in the place of those that they were made of, so that a crash at any
moment leaves the old or the new.

The order of renames is all there is to it; a power failure keeps a prefix of them, as journalling
file systems do:

1. the indexes' `.cleaned` files become `.swap`, and the log's last: from that name on the new
  segment counts;
2. the old files become `.deleted`;
3. the indexes' `.swap` files get their names, and the log's last.

At the next start, a `.swap` of a log means that 2 and 3 are to be finished. Which segments it was
made of is seen from the last batch in it, which compaction keeps, if need be empty. A `.swap` of an
index alone, like `.cleaned`, comes from before the new one counted, and goes.
"""

from __future__ import annotations

from penstock.log import names
from penstock.log.files import OpenFiles
from penstock.log.segment import scan_headers
from penstock.world import Disk

# The log comes last in both steps.
_KINDS = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX, names.LOG)


def swap_in(files: OpenFiles, path: str, base: int, end: int, unique: str) -> list[str]:
    """What was compacted of the segments from one offset to another (the base of the next one)
    takes their place: one synchronous run. Gives the files of the old ones, renamed; `unique` tells
    them from those of a compaction before."""
    disk = files.disk
    for kind in _KINDS:
        name = f"{path}/{names.segment_file(base, kind)}"
        disk.rename(name + names.CLEANED, name + names.SWAP)
    doomed = []
    for name in _names_between(disk, path, base, end):
        files.forget(f"{path}/{name}")
        doomed.append(f"{path}/{name}.{unique}{names.DELETED}")
        disk.rename(f"{path}/{name}", doomed[-1])
    _bring_in(disk, path, base)
    return doomed


def _names_between(disk: Disk, path: str, base: int, end: int) -> list[str]:
    """The files of the segments from one offset up to another, and the producers' snapshots after
    the first of them."""
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
    """At a start: finishes what was begun. Gives a line for each, for the node's own log."""
    notes = []
    swaps = [name for name in disk.list(path) if name.endswith(names.SWAP)]
    for name in swaps:
        parsed = names.parse_segment_file(name.removesuffix(names.SWAP))
        if parsed is None or parsed[1] != names.LOG:
            continue
        end = _end_offset(disk, f"{path}/{name}", parsed[0])
        _catch_up_indexes(disk, path, parsed[0])
        for old in _names_between(disk, path, parsed[0], end):
            # An index without a .swap beside it is the new one already.
            if (
                parsed[0] != _base_of(old)
                or old.endswith(names.LOG)
                or disk.exists(f"{path}/{old}{names.SWAP}")
            ):
                disk.remove(f"{path}/{old}")
        _bring_in(disk, path, parsed[0])
        notes.append(f"{path}: a compaction of the offsets from {parsed[0]} to {end} was finished")
    for name in swaps:
        if disk.exists(f"{path}/{name}"):
            disk.remove(f"{path}/{name}")
    if swaps:
        disk.sync_dir(path)
    return notes


def _catch_up_indexes(disk: Disk, path: str, base: int) -> None:
    """Apache Kafka renames the log first."""
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
