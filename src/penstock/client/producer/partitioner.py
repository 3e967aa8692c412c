"""Which partition a record goes to, as Kafka's own producer decides it: by the murmur2 of its key,
or sticky where it has none."""

from __future__ import annotations

from penstock.world import Rng

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned. Kafka's has a seed of its own."""
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
    """Records without a key stay on one partition until a batch's worth of bytes went there, then
    move to another (KIP-794)."""

    def __init__(self, rng: Rng, batch_bytes: int) -> None:
        self._rng = rng
        self._batch_bytes = batch_bytes
        self._current: dict[str, tuple[int, int]] = {}

    def partition_of(self, topic: str, partitions: int, size: int) -> int:
        partition, taken = self._current.get(topic, (-1, 0))
        if not 0 <= partition < partitions or taken >= self._batch_bytes:
            partition, taken = self._another(partition, partitions), 0
        self._current[topic] = partition, taken + size
        return partition

    def _another(self, current: int, partitions: int) -> int:
        if not 0 <= current < partitions or partitions == 1:
            return self._rng.randrange(partitions)
        return (current + 1 + self._rng.randrange(partitions - 1)) % partitions
