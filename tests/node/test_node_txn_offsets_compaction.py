"""Compaction of __consumer_offsets with transactions: a coordinator that loads the compacted log
knows the same offsets, and the same pending ones, as one that loads the whole log."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.runtime.step import PLAIN, Now, Step
from penstock.errors import ErrorCode
from penstock.node.partition.partition import Partition
from penstock.node.shards.loading import ShardLoader
from penstock.node.shards.step_batch import step_batch
from penstock.records.compression import Codec
from penstock.world.sim import Simulation
from tests.coordinator.group_world import World
from tests.coordinator.test_coordinator_transaction_histories import (
    PARTITIONS,
    Event,
    apply,
    events,
    expected,
)
from tests.coordinator.transaction_world import end_txn, fetched, txn_commit
from tests.log.compacting import COMPACTED, all_batches, compact
from tests.node.test_node_partition import new_partition


class LoggedWorld(World):
    """Writes each step to a real partition as well."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        super().__init__()

    def take(self, step: Step[Any]) -> Step[Any]:
        if step.writes:
            producer_id, epoch = step.batch.producer_id, step.batch.producer_epoch
            if step.batch != PLAIN and not step.batch.control:
                guard = self.partition.begin_verification(producer_id, epoch, adds=True)
                assert guard is None or self.partition.confirm_verification(guard)
            now = Now(self.now_ms, self.partition.env.world.clock.now_ms())
            batch = step_batch(step, now, Codec.NONE)
            self.partition.append(batch, acks_all=True, from_client=False)
        return super().take(step)


async def check(world: LoggedWorld, history: list[Event]) -> None:
    """Load a machine from the partition and compare it with the history."""
    partition, machine = world.partition, world.new_machine()
    loader = ShardLoader(partition.env.world)
    await loader.load(partition, partition.log_end_offset, machine.replay, lambda: True)
    for index in PARTITIONS:
        offset, unstable = expected(history, index)
        stable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT) if unstable else (offset, ErrorCode.NONE)
        assert fetched(machine, stable=False, partition=index) == (offset, ErrorCode.NONE)
        assert fetched(machine, stable=True, partition=index) == stable


@given(st.lists(st.lists(events, min_size=1, max_size=12), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_a_compacted_log_of_transactions_says_the_same(parts: list[list[Event]]) -> None:
    simulation = Simulation(5)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d", COMPACTED)
        world, history = LoggedWorld(partition), list[Event]()
        for part in parts:
            for event in part:
                apply(world, len(history), event)
                history.append(event)
            await compact(partition.env.store, partition.log)
            await check(world, history)
            await asyncio.sleep(2)  # delete.retention.ms passes

    simulation.run(node.run(main()))


def test_compaction_shortens_a_log_of_ended_transactions() -> None:
    simulation = Simulation(5)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d", COMPACTED)
        world = LoggedWorld(partition)
        for offset in range(100):
            txn_commit(world, 7, offset)
            end_txn(world, 7, commit=offset % 2 == 0)
        for _run in range(4):
            txn_commit(world, 7, 100)
            end_txn(world, 7)
            await compact(partition.env.store, partition.log)
            await asyncio.sleep(2)
        assert len(all_batches(partition.log)) < 12

    simulation.run(node.run(main()))
