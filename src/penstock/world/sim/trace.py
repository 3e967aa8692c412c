"""The trace of a simulated run: every disk and network event in order, as a digest and as the last
lines.

Two runs of one seed must have the same digest. Therefore details are plain values only: the text of
other objects could contain addresses, or depend on hash order.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable

from penstock.ids import Buffer

Detail = str | int | float | bytes | None
_PLAIN = (str, int, float, bytes, type(None))
_PLAIN_TYPES = frozenset((*_PLAIN, bool))


class Trace:
    def __init__(
        self, now: Callable[[], float], current_name: Callable[[], str], *, keep_lines: int = 0
    ) -> None:
        self._now = now
        self._current_name = current_name
        self._digest = hashlib.sha256()
        self._lines: deque[str] = deque(maxlen=keep_lines)
        self.events = 0

    def note(self, *details: Detail) -> None:
        """Record details for the running node. For workloads and checkers: what a run should be
        compared by."""
        self.record(self._current_name(), "note", *details)

    def record(self, node: str, kind: str, *details: Detail) -> None:
        if not _PLAIN_TYPES.issuperset(map(type, details)):
            _check_plain(details)
        line = f"{self._now():.9f} {node} {kind} {' '.join(map(repr, details))}"
        self._digest.update(line.encode() + b"\n")
        self._lines.append(line)
        self.events += 1

    def digest(self) -> str:
        return self._digest.hexdigest()

    def lines(self) -> list[str]:
        """Return the last lines, oldest first, as many as the trace keeps."""
        return list(self._lines)


def _check_plain(details: tuple[Detail, ...]) -> None:
    for detail in details:
        if not isinstance(detail, _PLAIN):
            raise TypeError(
                f"a trace takes plain values only, not {type(detail).__name__}: its text might "
                "differ between runs"
            )


def fingerprint(data: Buffer) -> int:
    """Return a checksum that represents data in a trace."""
    return zlib.crc32(data)
