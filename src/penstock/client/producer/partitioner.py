"""Kafka's default partitioner, murmur2 of the key, or sticky without a key."""

from __future__ import annotations

from penstock.world import Rng

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash with Kafka's seed."""
    length = len(data)
    whole = length & ~3
    hashed = _SEED ^ length
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        hashed = hashed * _M & _MASK ^ (word ^ word >> 24) * _M & _MASK
    if length != whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Keeps records without a key on one partition for a batch's worth of bytes (KIP-794)."""

    def __init__(self, rng: Rng, batch_bytes: int) -> None:
        self._rng = rng
        self._batch_bytes = batch_bytes
        self._current: dict[str, tuple[int, int]] = {}

    def partition_of(self, topic: str, partitions: int, size: int) -> int:
        partition, produced = self._current.get(topic, (-1, 0))
        if not 0 <= partition < partitions or produced >= self._batch_bytes:
            partition, produced = self._next(partition, partitions), 0
        self._current[topic] = partition, produced + size
        return partition

    def _next(self, current: int, partitions: int) -> int:
        if not 0 <= current < partitions or partitions == 1:
            return self._rng.randrange(partitions)
        return (current + 1 + self._rng.randrange(partitions - 1)) % partitions
