"""What the partitions of a broker count: traffic by topic, and changes of ISRs.

Plain additions on the paths of produce and fetch; `node/metrics` reads them.
"""

from __future__ import annotations

from collections import Counter


class TopicTraffic:
    """The traffic of a topic's partitions on this broker. It only grows."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "messages_in",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: TopicTraffic) -> None:
        self.bytes_in += other.bytes_in
        self.messages_in += other.messages_in
        self.bytes_out += other.bytes_out
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out


class PartitionCounts:
    """The counts of all partitions of a broker. A topic has an entry from its first traffic on;
    those of deleted topics are part of `deleted`, so that the sums do not decrease."""

    __slots__ = (
        "deleted",
        "fetch_errors",
        "isr_expands",
        "isr_shrinks",
        "isr_updates_failed",
        "produce_errors",
        "topics",
    )

    def __init__(self) -> None:
        # Error codes in responses.
        self.produce_errors: Counter[int] = Counter()
        self.fetch_errors: Counter[int] = Counter()
        self.topics: dict[str, TopicTraffic] = {}
        self.deleted = TopicTraffic()
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.isr_updates_failed = 0

    def traffic_of(self, topic: str) -> TopicTraffic:
        traffic = self.topics.get(topic)
        if traffic is None:
            traffic = self.topics[topic] = TopicTraffic()
        return traffic

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        traffic = self.topics.pop(topic, None)
        if traffic is not None:
            self.deleted.add(traffic)

    def isr_changed(self, before: int, after: int) -> None:
        """Count a change of the number of in-sync replicas of a partition."""
        if after < before:
            self.isr_shrinks += 1
        elif after > before:
            self.isr_expands += 1
