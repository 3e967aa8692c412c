"""The trace of a simulated run: every disk and network event in order, as a digest and as the last
lines.

Two runs of one seed must have the same digest. Therefore details are plain values only: the text of
other objects could contain addresses, or depend on hash order.
"""

from __future__ import annotations

import hashlib
import marshal
import zlib
from collections.abc import Callable

from penstock.ids import Buffer

Detail = str | int | float | bytes | None
_PLAIN_TYPES = frozenset((str, int, float, bytes, bool, type(None)))
# Events are digested in groups of this many. Version 2 of marshal's format is the newest in which
# equal values have equal bytes: later ones depend on how often an object is referenced.
_GROUP = 512
_MARSHAL_VERSION = 2

_Event = tuple[float, str, str, tuple[Detail, ...]]


class Trace:
    def __init__(
        self, now: Callable[[], float], current_name: Callable[[], str], *, keep_lines: int = 0
    ) -> None:
        self._now = now
        self._current_name = current_name
        self._keep_lines = keep_lines
        self._digest = hashlib.sha256()
        self._digested = 0
        # The events that are not digested yet, and the last ones before them.
        self._group: list[_Event] = []
        self._before: list[_Event] = []

    @property
    def events(self) -> int:
        return self._digested + len(self._group)

    def note(self, *details: Detail) -> None:
        """Record details for the running node. For workloads and checkers: what a run should be
        compared by."""
        self.record(self._current_name(), "note", *details)

    def record(self, node: str, kind: str, *details: Detail) -> None:
        if not _PLAIN_TYPES.issuperset(map(type, details)):
            details = tuple(map(_plain, details))
        self._group.append((self._now(), node, kind, details))
        if len(self._group) == _GROUP:
            self._digest.update(marshal.dumps(self._group, _MARSHAL_VERSION))
            self._digested += _GROUP
            self._before = self._last()
            self._group.clear()

    def _last(self) -> list[_Event]:
        return [*self._before, *self._group][-self._keep_lines :] if self._keep_lines else []

    def digest(self) -> str:
        """Return the digest of all events so far."""
        digest = self._digest.copy()
        digest.update(marshal.dumps(self._group, _MARSHAL_VERSION))
        return digest.hexdigest()

    def lines(self) -> list[str]:
        """Return the last lines, oldest first, as many as the trace keeps."""
        return [
            f"{at:.9f} {node} {kind} {' '.join(map(repr, details))}"
            for at, node, kind, details in self._last()
        ]


def _plain(detail: Detail) -> Detail:
    """Return a plain value as its plain type: an IntEnum as an int."""
    match detail:
        case None | bool():
            return detail
        case int():
            return int(detail)
        case str():
            return str(detail)
        case float():
            return float(detail)
        case bytes():
            return bytes(detail)
        case _:
            raise TypeError(
                f"a trace takes plain values only, not {type(detail).__name__}: its text might "
                "differ between runs"
            )


def fingerprint(data: Buffer) -> int:
    """Return a checksum that represents data in a trace."""
    return zlib.crc32(data)
