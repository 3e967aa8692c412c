"""Reads and compares the logs of replicas."""

from __future__ import annotations

from penstock.node.partition.partition import Partition
from penstock.records.batch import batches
from penstock.world.sim import NodeCrashed

# (base offset, next offset, bytes)
Batches = list[tuple[int, int, bytes]]
_READ_BYTES = 1024 * 1024


def read_batches(partition: Partition, end: int) -> Batches:
    """Return every batch below an offset, or nothing if the replica's process has crashed."""
    result: Batches = []
    offset = partition.log_start_offset
    while offset < end:
        try:
            part = partition.log.read(offset, _READ_BYTES, below=end)
        except NodeCrashed:
            return []
        if part is None:
            break
        data = bytes(part.read())
        for position, header in batches(data):
            result.append(
                (header.base_offset, header.next_offset, data[position : position + header.size])
            )
        offset = result[-1][1]
    return result


def common_end(ours: Batches, theirs: Batches) -> int:
    """Return the end offset of the longest common prefix of two logs."""
    end = 0
    for our_batch, their_batch in zip(ours, theirs, strict=False):
        if our_batch != their_batch:
            break
        end = our_batch[1]
    return end
