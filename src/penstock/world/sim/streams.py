"""Randomness from one seed, in independent streams by name: a new consumer does not shift what the
others draw."""

from __future__ import annotations

import hashlib
import random
from uuid import UUID

from penstock.world.uuids import usable_uuid


def stream(seed: int, name: str) -> random.Random:
    """Equal seeds and names give equal streams, in every process and Python version. (hash() would
    not.)"""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))


class SimRng:
    """The Rng of one node, fed by a stream of its own."""

    __slots__ = ("_stream",)

    def __init__(self, source: random.Random) -> None:
        self._stream = source

    def random(self) -> float:
        return self._stream.random()

    def randrange(self, stop: int) -> int:
        return self._stream.randrange(stop)

    def uuid(self) -> UUID:
        return usable_uuid(lambda: self._stream.randbytes(16))
