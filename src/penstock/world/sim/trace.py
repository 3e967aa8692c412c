"""The trace of a simulated run: every event visible from outside, in order, as one digest.

Owns the digest and the last lines, for reading. Two runs of one seed must give the same digest, so
details are plain values only: anything whose text could hold an address or a hash order is refused.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable

from penstock.ids import Buffer

Detail = str | int | float | bytes | None
_PLAIN = (str, int, float, bytes, type(None))


class Trace:
    def __init__(
        self, now: Callable[[], float], whose: Callable[[], str], *, keep_lines: int = 0
    ) -> None:
        self._now = now
        self._whose = whose
        self._digest = hashlib.sha256()
        self._lines: deque[str] = deque(maxlen=keep_lines)
        self.events = 0

    def note(self, *details: Detail) -> None:
        """For workloads and checkers: whatever a run should be compared by. It counts as the
        running node's."""
        self.record(self._whose(), "note", *details)

    def record(self, node: str, kind: str, *details: Detail) -> None:
        for detail in details:
            if type(detail) not in _PLAIN and not isinstance(detail, _PLAIN):
                raise TypeError(
                    f"a trace takes plain values only, not {type(detail).__name__}: its text "
                    "might differ between runs"
                )
        line = f"{self._now():.9f} {node} {kind} {' '.join(map(repr, details))}"
        self._digest.update(line.encode() + b"\n")
        self._lines.append(line)
        self.events += 1

    def digest(self) -> str:
        return self._digest.hexdigest()

    def lines(self) -> list[str]:
        """The last lines, oldest first, where the run was told to keep some."""
        return list(self._lines)


def fingerprint(data: Buffer) -> int:
    """Stands for the data in a trace, which would grow too long otherwise."""
    return zlib.crc32(data)
