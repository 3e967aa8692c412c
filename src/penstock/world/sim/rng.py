"""Randomness from one seed, in independent named streams: a new consumer of randomness does not
change what the others draw."""

from __future__ import annotations

import hashlib
import random
from uuid import UUID

from penstock.world.uuids import usable_uuid


def stream(seed: int, name: str) -> random.Random:
    """Return the random stream of a seed and a name. It is the same in every process and Python
    version, which hash() would not give.

    Renaming a stream changes every run that draws from it.
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))


class SimRng:
    """The Rng of one process, fed by a stream of its own."""

    __slots__ = ("_stream",)

    def __init__(self, source: random.Random) -> None:
        self._stream = source

    def random(self) -> float:
        return self._stream.random()

    def randrange(self, stop: int) -> int:
        return self._stream.randrange(stop)

    def uuid(self) -> UUID:
        return usable_uuid(lambda: self._stream.randbytes(16))
