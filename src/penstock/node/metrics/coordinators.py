"""Samples of the groups and transactions that this broker coordinates."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock.limits import SCRAPED_PARTITIONS_PER_STEP
from penstock.metrics.catalogue import coordinators as names
from penstock.metrics.samples import Samples, Series
from penstock.metrics.turn import Turn
from penstock.node.shards.groups import Groups
from penstock.node.shards.transactions import Transactions
from penstock.world import Clock

if TYPE_CHECKING:
    from penstock.coordinator.groups.machine import GroupMachine


class GroupSource:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        # A machine counts from the load of its shard on. The sums must not decrease when a shard
        # moves to another broker, so that what a machine had is remembered.
        self._seen: WeakKeyDictionary[GroupMachine, tuple[int, int]] = WeakKeyDictionary()
        self._rebalances = [0, 0]
        self._series = Series()

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        states: Counter[tuple[str, str]] = Counter()
        members: dict[str, int] = {}
        offsets = 0
        for machine in self._groups.machines:
            self._count_rebalances(machine)
            for number, group in enumerate(list(machine.groups.by_id.values()), 1):
                states[group.kind, group.state_name] += 1
                members[group.id] = group.member_count
                offsets += len(machine.groups.offsets.of_group(group.id))
                if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                    await turn.pause()
        for (kind, state), count in states.items():
            samples.add(names.GROUPS, count, kind, state)
        async for group_id in samples.bounded(members, self._series, turn):
            samples.add(names.GROUP_MEMBERS, members[group_id], group_id)
        samples.add(names.COMMITTED_OFFSETS, offsets)
        samples.add(names.REBALANCES, self._rebalances[0], "classic")
        samples.add(names.REBALANCES, self._rebalances[1], "consumer")

    def _count_rebalances(self, machine: GroupMachine) -> None:
        now = machine.groups.classic_rebalances, machine.groups.consumer_rebalances
        before = self._seen.get(machine, (0, 0))
        self._seen[machine] = now
        for index in range(2):
            self._rebalances[index] += now[index] - before[index]


class TransactionSource:
    def __init__(self, clock: Clock, transactions: Transactions) -> None:
        self._clock = clock
        self._transactions = transactions

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        states: Counter[str] = Counter()
        now_ms = self._clock.now_ms()
        oldest_ms = now_ms
        for machine in self._transactions.machines:
            for number, transaction in enumerate(list(machine.table.by_id.values()), 1):
                states[transaction.state.label] += 1
                if transaction.is_ongoing or transaction.is_prepared:
                    oldest_ms = min(oldest_ms, transaction.start_ms)
                if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                    await turn.pause()
        for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
            states.setdefault(state, 0)
        for state, count in states.items():
            samples.add(names.TRANSACTIONS, count, state)
        samples.add(names.TRANSACTION_AGE, (now_ms - oldest_ms) / 1000)
