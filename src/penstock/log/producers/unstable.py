"""The transactions that hold back the last stable offset of a log. PURE."""

from __future__ import annotations

from collections.abc import Iterable


class UnstableTransactions:
    """Transactions that are open, and those whose marker is in the log but may still be lost.

    `first_offset` is the smallest first offset of all; None if there are none. Every fetch reads
    it, so it is kept and not computed.
    """

    __slots__ = ("_open", "_unreplicated", "first_offset")

    def __init__(self) -> None:
        self.first_offset: int | None = None
        # Producers with an open transaction, and its first offset, in the order of these offsets:
        # few, while there may be many producers.
        self._open: dict[int, int] = {}
        # Transactions whose marker is not below the high watermark: first offset -> offset of the
        # marker.
        self._unreplicated: dict[int, int] = {}

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Add a transaction whose first batch was appended at the log's end."""
        self._open[producer_id] = first_offset
        if self.first_offset is None:
            self.first_offset = first_offset

    def end(self, producer_id: int, first_offset: int, marker_offset: int) -> None:
        """The transaction's marker is in the log. Until it is replicated, the last stable offset
        stays."""
        del self._open[producer_id]
        self._unreplicated[first_offset] = marker_offset

    def advance(self, high_watermark: int) -> None:
        """Forget transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }
            self._find_first()

    def restore(self, open_transactions: Iterable[tuple[int, int]]) -> None:
        """Add open transactions of a snapshot: producer ids and first offsets."""
        self._open.update(open_transactions)
        self._open = dict(sorted(self._open.items(), key=lambda item: item[1]))
        self._find_first()

    def truncated(self, former: UnstableTransactions, end_offset: int) -> None:
        """Continue those of a log that was truncated to an offset. What was read from the log again
        does not tell which markers are replicated, and a snapshot has none of them."""
        self._unreplicated = {
            first: last for first, last in former._unreplicated.items() if last < end_offset
        }
        self._find_first()

    @property
    def first_open(self) -> int | None:
        """The first offset of the open transactions."""
        return next(iter(self._open.values()), None)

    def _find_first(self) -> None:
        first_open, first = self.first_open, min(self._unreplicated, default=None)
        if first is None or (first_open is not None and first_open < first):
            first = first_open
        self.first_offset = first
