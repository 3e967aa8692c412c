"""The partitions whose in-sync replicas a broker leaves in one change, and why, as one log line.

A broker that fails may leave those of 100,000 partitions. They are counted; the worst of them gives
the chain of causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from penstock.health.observations import Observation, Partition, Topic
from penstock.health.partitions import check_partitions, partition_state
from penstock.health.wording import NAMED, listed
from penstock.ids import TopicPartition

# The states of partitions, the worst first, and how a line counts them.
_OFFLINE, _UNDER_MIN_ISR, _AT_MIN_ISR = "offline", "under-min-isr", "at-min-isr"
_STATES = (_OFFLINE, _UNDER_MIN_ISR, _AT_MIN_ISR, "under-replicated")
_COUNTED = {
    _OFFLINE: "without a leader",
    _UNDER_MIN_ISR: "below min.insync.replicas",
    _AT_MIN_ISR: "at min.insync.replicas",
}


class Departures:
    """Of one broker. `add` does the same small amount of work for each partition."""

    __slots__ = ("_broker_id", "_counts", "_min_insync", "_names", "_worst")

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._counts: Counter[str] = Counter()
        self._names: list[TopicPartition] = []
        self._worst: Partition | None = None
        self._min_insync = 1

    def __bool__(self) -> bool:
        return bool(self._counts)

    @property
    def has_offline(self) -> bool:
        return _OFFLINE in self._counts

    def add(
        self,
        name: TopicPartition,
        leader: int,
        in_sync: int,
        min_insync: int,
        describe: Callable[[], Partition],
    ) -> None:
        """Count a partition as it is now. `describe` is called for the first one of a state."""
        state = partition_state(leader, in_sync, min_insync)
        worst = self._worst is None or _STATES.index(state) < min(map(_STATES.index, self._counts))
        self._counts[state] += 1
        if worst:
            self._worst, self._min_insync = describe(), min_insync
            self._names.insert(0, name)
            del self._names[NAMED:]
        elif len(self._names) < NAMED:
            self._names.append(name)

    def line(self, seen: Observation) -> str:
        """Return "broker 2 left the in-sync replicas of payments-3 and 311 more: …"; `seen` has
        what is known of the broker."""
        worst = self._worst
        assert worst is not None
        topic = Topic(worst.name.topic, min_insync=self._min_insync)
        known = replace(
            seen, partitions={worst.name: worst}, topics={worst.name.topic: topic}, offsets={}
        )
        finding = next(check_partitions(known))
        total = self._counts.total()
        words = [
            f"{self._counts[state]:,} of them are {text}"
            for state, text in _COUNTED.items()
            if self._counts[state] and total > 1
        ]
        words += [reason.words for reason in finding.reasons]
        text = "; ".join(words)
        todo = f". To do: {finding.todos[0]}" if self.has_offline and finding.todos else ""
        names = listed(self._names, more=total - len(self._names))
        return f"broker {self._broker_id} left the in-sync replicas of {names}: {text}{todo}"
