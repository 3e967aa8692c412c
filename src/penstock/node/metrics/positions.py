"""Which replicas tell the high watermarks of the partitions that groups have committed offsets of.

To look up 10,000 replicas by their names, and whether each is in sync, takes most of the time of a
scrape. Between two scrapes they are usually the same. So the result is kept, and a scrape checks
that nothing has changed: the names, the broker's replicas and their states are compared by
identity, which takes some nanoseconds each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

from penstock.ids import TopicPartition
from penstock.limits import (
    SCRAPE_KEPT_OFFSETS,
    SCRAPE_KEPT_S,
    SCRAPED_PARTITIONS_PER_STEP,
    SCRAPED_SAMPLES_PER_STEP,
)
from penstock.metadata.image import PartitionState
from penstock.metrics.turn import Turn
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas

_state = attrgetter("state")


class GroupPositions:
    """The partitions of a group. `replicas` has this broker's replica of each: None if it has none,
    or if the replica is not in sync or offline. `local` counts the others by topic."""

    __slots__ = ("_candidates", "_names", "_states", "local", "replicas")

    def __init__(self, names: list[TopicPartition]) -> None:
        self._names = names
        self.replicas: list[Partition | None] = []
        self.local: Counter[str] = Counter()
        # All replicas of this broker, and the states that decided whether they are in sync.
        self._candidates: list[Partition] = []
        self._states: list[PartitionState | None] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(self, names: Sequence[TopicPartition], node_id: int, replicas: Replicas) -> None:
        partitions, local = replicas.partitions, self.local
        is_any_offline = any(each.failure for each in replicas.store.directories)
        for name in names:
            partition = partitions.get(name)
            if partition is not None:
                state = partition.state
                self._candidates.append(partition)
                self._states.append(state)
                if (
                    state is None
                    or (state.leader != node_id and node_id not in state.isr)
                    or (is_any_offline and partition.directory.failure is not None)
                ):
                    partition = None
                else:
                    local[name[0]] += 1
            self.replicas.append(partition)

    async def is_current(self, names: list[TopicPartition], turn: Turn) -> bool:
        """Return True if the group has committed offsets of the same partitions, and their replicas
        are in the same states."""
        if names != self._names:
            return False
        candidates, states = iter(self._candidates), self._states
        for start in range(0, len(states), SCRAPED_SAMPLES_PER_STEP):
            some = states[start : start + SCRAPED_SAMPLES_PER_STEP]
            if list(map(_state, islice(candidates, SCRAPED_SAMPLES_PER_STEP))) != some:
                return False
            await turn.pause()
        return True


class Positions:
    """Call `begin`, then `of_group` for each group of a scrape, then `end`."""

    def __init__(self, node_id: int, replicas: Replicas) -> None:
        self._node_id = node_id
        self._replicas = replicas
        # All replicas of the broker at the last scrape.
        self._all: list[Partition] = []
        self._kept: dict[str, GroupPositions] = {}
        self._kept_now: dict[str, GroupPositions] = {}
        self._kept_count = 0
        self._forgetting: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        replicas = list(self._replicas.partitions.values())
        if replicas != self._all or any(each.failure for each in self._replicas.store.directories):
            self._kept.clear()
        self._all = replicas
        self._kept_now, self._kept_count = {}, 0
        self._forget_later()

    async def of_group(
        self, group_id: str, names: list[TopicPartition], turn: Turn
    ) -> GroupPositions:
        """Return the positions of a group that has committed offsets of these partitions."""
        kept = self._kept.get(group_id)
        if kept is None or not await kept.is_current(names, turn):
            kept = GroupPositions(names)
            for start in range(0, len(names), SCRAPED_PARTITIONS_PER_STEP):
                some = names[start : start + SCRAPED_PARTITIONS_PER_STEP]
                kept.add(some, self._node_id, self._replicas)
                await turn.pause()
        self._kept_count += len(kept)
        if self._kept_count <= SCRAPE_KEPT_OFFSETS:
            self._kept_now[group_id] = kept
        return kept

    def end(self) -> None:
        """Forget the groups that this scrape has not asked for."""
        self._kept, self._kept_now = self._kept_now, {}

    def _forget_later(self) -> None:
        """Forget everything if no scrape follows: the replicas of topics that are deleted would
        stay in memory."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(SCRAPE_KEPT_S, self._forget)

    def _forget(self) -> None:
        self._all, self._kept, self._kept_now = [], {}, {}
