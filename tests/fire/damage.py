"""Damages files of a stopped node: one flipped bit, or a cut."""

from __future__ import annotations

import random
from enum import Enum
from pathlib import Path


class Damage(Enum):
    FLIP = "flip"
    CUT = "cut"

    def apply(self, file: Path, rng: random.Random, *, tail: bool = False) -> str:
        """Damage a file and return what was done. With `tail`, it is within the last 64 bytes."""
        content = bytearray(file.read_bytes())
        if not content:
            raise ValueError(f"{file} is empty and cannot be damaged")
        position = rng.randrange(max(0, len(content) - 64) if tail else 0, len(content))
        if self is Damage.CUT:
            file.write_bytes(content[:position])
            return f"{file} cut from {len(content)} to {position} bytes"
        bit = rng.randrange(8)
        content[position] ^= 1 << bit
        file.write_bytes(content)
        return f"bit {bit} of byte {position} of {file} flipped"
