"""Reads the logs of a node's partitions as they lie there, to compare them."""

from __future__ import annotations

from penstock.node.partition.partition import Partition
from penstock.records.batch import batches
from penstock.world.sim import NodeCrashed

Batches = list[tuple[int, int, bytes]]
_PIECE_BYTES = 1024 * 1024


def batches_below(partition: Partition, end: int) -> Batches:
    """(base offset, next offset, bytes) of every batch; nothing of a process that is no more."""
    found: Batches = []
    offset = partition.log_start_offset
    while offset < end:
        try:
            part = partition.log.read(offset, _PIECE_BYTES, below=end)
        except NodeCrashed:
            return []
        if part is None:
            break
        data = bytes(part.read())
        for position, header in batches(data):
            found.append(
                (header.base_offset, header.next_offset, data[position : position + header.size])
            )
        offset = found[-1][1]
    return found


def shared_end(ours: Batches, theirs: Batches) -> int:
    """Up to where two logs are the same."""
    end = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        end = one[1]
    return end
