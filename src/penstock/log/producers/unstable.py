"""The transactions that hold back the last stable offset of a log. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Never changed.
_NONE: Final[dict[int, int]] = {}


class UnstableTransactions:
    """Transactions that are open, and those whose marker is in the log but may still be lost.

    `first_offset` is the smallest first offset of all; None if there are none. Every fetch reads
    it, so it is kept and not computed.
    """

    __slots__ = ("_open", "_unreplicated", "first_offset")

    def __init__(self) -> None:
        self.first_offset: int | None = None
        # Producers with an open transaction, and its first offset, in the order of these offsets:
        # few, while there may be many producers. Most logs have none ever, and share this dict.
        self._open = _NONE
        # Transactions whose marker is not below the high watermark: first offset -> offset of the
        # marker.
        self._unreplicated = _NONE

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Add a transaction whose first batch was appended at the log's end."""
        if self._open is _NONE:
            self._open = {}
        self._open[producer_id] = first_offset
        if self.first_offset is None:
            self.first_offset = first_offset

    def end(self, producer_id: int, first_offset: int, marker_offset: int) -> None:
        """The transaction's marker is in the log. Until it is replicated, the last stable offset
        stays."""
        del self._open[producer_id]
        if self._unreplicated is _NONE:
            self._unreplicated = {}
        self._unreplicated[first_offset] = marker_offset

    def advance(self, high_watermark: int) -> None:
        """Forget transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            } or _NONE
            self._find_first()

    def restore(self, open_transactions: Iterable[tuple[int, int]]) -> None:
        """Add open transactions of a snapshot: producer ids and first offsets."""
        open_now = self._open | dict(open_transactions)
        self._open = dict(sorted(open_now.items(), key=lambda item: item[1])) if open_now else _NONE
        self._find_first()

    def truncated(self, former: UnstableTransactions, end_offset: int) -> None:
        """Continue those of a log that was truncated to an offset. What was read from the log again
        does not tell which markers are replicated, and a snapshot has none of them."""
        self._unreplicated = {
            first: last for first, last in former._unreplicated.items() if last < end_offset
        } or _NONE
        self._find_first()

    @property
    def first_open(self) -> int | None:
        """The first offset of the open transactions."""
        return next(iter(self._open.values()), None)

    @property
    def oldest_producer(self) -> int | None:
        """The producer of the open transaction with the first offset."""
        return next(iter(self._open), None)

    def _find_first(self) -> None:
        first_open, first = self.first_open, min(self._unreplicated, default=None)
        if first is None or (first_open is not None and first_open < first):
            first = first_open
        self.first_offset = first
