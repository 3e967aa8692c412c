"""Randomness from the operating system: session ids and nonces made of it cannot be guessed."""

from __future__ import annotations

import os
from random import SystemRandom
from uuid import UUID

from penstock.world.uuids import usable_uuid


class RealRng:
    """A draw takes about a microsecond. The produce and fetch paths draw nothing."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = SystemRandom()

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def uuid(self) -> UUID:
        return usable_uuid(lambda: os.urandom(16))
