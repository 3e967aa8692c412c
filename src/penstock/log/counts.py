"""What the logs of a store count: syncs, recoveries and compactions. `node/metrics` reads them."""

from __future__ import annotations

from penstock.metrics.histogram import Histogram


class LogCounts:
    """Everything but `opening_s` and `recovered_logs`, which the start sets, only grows."""

    __slots__ = (
        "compacted_bytes",
        "compaction_s",
        "compactions",
        "compactions_failed",
        "flushes",
        "opening_s",
        "recovered_logs",
        "removed_records",
    )

    def __init__(self) -> None:
        # The times of syncs in seconds.
        self.flushes = Histogram()
        # How long it took to open all logs, and how many of them were checked batch by batch.
        self.opening_s = 0.0
        self.recovered_logs = 0
        self.compactions = 0
        self.compaction_s = 0.0
        self.compacted_bytes = 0
        self.removed_records = 0
        self.compactions_failed = 0
