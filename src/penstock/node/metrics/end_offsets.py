"""The end offsets of one log at former scrapes: they tell about when a record was appended.

PURE. The memory is bounded, and reaches back as far as is needed. When it is full, some end offsets
are forgotten, so that the time between two of them is a share of their age.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from penstock.limits import REMEMBERED_END_OFFSETS

# How many end offsets are forgotten at a time.
_FORGOTTEN = REMEMBERED_END_OFFSETS // 6


class EndOffsets:
    """Times are in milliseconds of the wall clock. The log ended at `_ends[i]` at the scrapes from
    `_first_ms[i]` to `_last_ms[i]`. Arrays: a broker may have one of these for each of 50,000
    partitions."""

    __slots__ = ("_ends", "_first_ms", "_last_ms")

    def __init__(self) -> None:
        self._ends = array("q")
        self._first_ms = array("q")
        self._last_ms = array("q")

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def last(self) -> int:
        """The end offset at the last scrape; 0 before the first."""
        return self._ends[-1] if self._ends else 0

    def add(self, end: int, now_ms: int) -> None:
        """If the log has become shorter, it is another one: after an unclean election, or because
        the topic was created again."""
        ends = self._ends
        if end < self.last:
            self._delete(slice(None))
        if ends and ends[-1] == end:
            self._last_ms[-1] = now_ms
            return
        if len(ends) >= REMEMBERED_END_OFFSETS:
            self._thin(now_ms)
        ends.append(end)
        self._first_ms.append(now_ms)
        self._last_ms.append(now_ms)

    def forget_before(self, offset: int) -> None:
        """Forget what only the ages of records before an offset depend on."""
        count = bisect_right(self._ends, offset) - 1
        if count > 0:
            self._delete(slice(count))

    def appended_ms(self, offset: int) -> int | None:
        """Return about when the record at an offset was appended: None if it was before the first
        scrape, or is not appended yet."""
        index = bisect_right(self._ends, offset)
        if not 0 < index < len(self._ends):
            return None
        before, last_ms = self._ends[index - 1], self._last_ms[index - 1]
        passed_ms = self._first_ms[index] - last_ms
        return last_ms + passed_ms * (offset - before) // (self._ends[index] - before)

    @property
    def since_ms(self) -> int | None:
        """The time of the first scrape that is remembered; None if there is none."""
        return self._first_ms[0] if self._first_ms else None

    def _thin(self, now_ms: int) -> None:
        """Forget some end offsets, no two beside each other and neither the first nor the last:
        those where the gap that they leave is the smallest share of its age."""
        at_ms = self._first_ms
        inner = range(1, len(at_ms) - 1)
        # The clock may have jumped.
        shares = {
            index: (at_ms[index + 1] - at_ms[index - 1]) / (abs(now_ms - at_ms[index + 1]) + 1)
            for index in inner
        }
        gone: set[int] = set()
        for index in sorted(inner, key=shares.__getitem__):
            if index - 1 not in gone and index + 1 not in gone:
                gone.add(index)
                if len(gone) == _FORGOTTEN:
                    break
        for index in sorted(gone, reverse=True):
            self._delete(slice(index, index + 1))

    def _delete(self, which: slice) -> None:
        for column in (self._ends, self._first_ms, self._last_ms):
            del column[which]
