from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import REFUSAL_REMEMBERED_S
from penstock.metadata.image import PartitionState
from penstock.node.delayed import ActionQueue
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.partition import Partition
from penstock.records.record import read_records
from penstock.replica.follower import DivergingEpoch
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.making import PARTITION, SMALL, TOPIC_ID, batch, in_real_world, open_store, sequenced

ALONE = PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=3)


async def new_partition(
    world: World, path: str, config: LogConfig = SMALL
) -> tuple[Partition, set[asyncio.Task[None]]]:
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None]) -> object:
        task = asyncio.create_task(work)
        tasks.add(task)
        return task

    store = await open_store(world, path, config)
    env = PartitionEnv(
        1,
        world,
        store,
        spawn,
        dict,
        lambda _role, _proposal: None,
        lag_max_s=30.0,
        actions=ActionQueue(world.clock),
    )
    partition = Partition(store.create(PARTITION, TOPIC_ID, config), env)
    partition.become(ALONE)
    return partition, tasks


def test_without_flush_messages_a_sole_replica_commits_immediately(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path)
        appended = partition.append(batch("a", "b"))
        assert partition.is_committed(appended.end_offset)
        assert (
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_end_offset,
        ) == (2, 2, 2)
        result = partition.read(0, 1_000, committed_only=False)
        assert result.range is not None
        assert [record.value for record in read_records(result.range.read())] == [b"a", b"b"]
        assert partition.read(2, 1_000, committed_only=False).range is None

    in_real_world(tmp_path, main)


def test_with_flush_messages_1_records_are_committed_when_they_are_synced() -> None:
    simulation = Simulation(1)
    node = simulation.node("n1")

    async def main() -> None:
        partition, tasks = await new_partition(node.world, "/d", replace(SMALL, flush_messages=1))
        end = partition.append(batch("a")).end_offset
        assert not partition.is_committed(end)
        assert partition.read(0, 1_000, committed_only=False).range is None, (
            "nothing above the high watermark is served (rule 8)"
        )
        await partition.wait_committed(end, node.world.clock.monotonic() + 1)
        assert partition.high_watermark == end
        assert partition.read(0, 1_000, committed_only=False).range is not None
        await asyncio.wait(tasks)

    simulation.run(node.run(main()))


def test_waiting_for_commit_times_out() -> None:
    simulation = Simulation(2)
    node = simulation.node("n1")

    async def main() -> None:
        partition, tasks = await new_partition(node.world, "/d", replace(SMALL, flush_messages=1))
        end = partition.append(batch("a")).end_offset
        with pytest.raises(KafkaError) as refused:
            await partition.wait_committed(end, node.world.clock.monotonic())
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        await asyncio.wait(tasks)

    simulation.run(node.run(main()))


def test_a_failed_sync_fails_the_waiters() -> None:
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        partition, tasks = await new_partition(node.world, "/d", replace(SMALL, flush_messages=1))
        node.drive.fail("/d", {"sync"}, times=1)
        end = partition.append(batch("a")).end_offset
        with pytest.raises(KafkaError) as refused:
            await partition.wait_committed(end, node.world.clock.monotonic() + 60)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == 0
        await asyncio.wait(tasks)

    simulation.run(node.run(main()))


def test_callbacks_run_once_per_iteration_of_the_event_loop(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path)
        seen: list[int] = []

        def callback() -> None:
            seen.append(partition.high_watermark)

        partition.on_change(callback)
        for value in "abc":
            partition.append(batch(value))
        assert seen == []
        await asyncio.sleep(0)
        assert seen == [3]
        partition.delete_records(1)
        await asyncio.sleep(0)
        assert seen == [3, 3]
        partition.off_change(callback)
        partition.append(batch("d"))
        await asyncio.sleep(0)
        assert seen == [3, 3]

    in_real_world(tmp_path, main)


def test_leader_epochs_are_fenced_and_records_deleted_up_to_the_high_watermark(
    tmp_path: Path,
) -> None:
    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path)
        for value in "abc":
            partition.append(batch(value))
        partition.check_leader(-1)
        partition.check_leader(3)
        for epoch, code in [
            (2, ErrorCode.FENCED_LEADER_EPOCH),
            (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ]:
            with pytest.raises(KafkaError) as refused:
                partition.check_leader(epoch)
            assert refused.value.code == code
        assert partition.delete_records(2) == 2
        for offset in (4, -2):
            with pytest.raises(KafkaError) as refused:
                partition.delete_records(offset)
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.delete_records(-1) == 3
        with pytest.raises(KafkaError):
            partition.read(2, 1, committed_only=False)

    in_real_world(tmp_path, main)


def test_a_leader_that_resigns_fails_the_waiters_and_refuses_appends() -> None:
    simulation = Simulation(4)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d")
        partition.become(
            PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=1)
        )
        end = partition.append(batch("a"), acks_all=True).end_offset
        assert not partition.is_committed(end)
        waiting = partition.wait_committed(end, node.world.clock.monotonic() + 60)
        partition.become(
            PartitionState(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=5, partition_epoch=2)
        )
        for refuse in (
            lambda: waiting.result(),
            lambda: partition.append(batch("b")),
            lambda: partition.check_leader(5),
        ):
            with pytest.raises(KafkaError) as refused:
                refuse()
            assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.check_leader(5, allow_follower=True)
        partition.become(
            PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=1)
        )
        assert not partition.is_leader, "an older state is ignored (rule 12)"

    simulation.run(node.run(main()))


def test_too_few_in_sync_replicas_fail_acks_all_before_and_after_the_append() -> None:
    simulation = Simulation(5)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(
            node.world, "/d", replace(SMALL, min_insync_replicas=2)
        )
        state = PartitionState(
            replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=1
        )
        partition.become(state)
        end = partition.append(batch("a"), acks_all=True).end_offset
        waiting = partition.wait_committed(end, node.world.clock.monotonic() + 60)
        partition.become(replace(state, isr=(1,), partition_epoch=2))
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        with pytest.raises(KafkaError) as refused:
            partition.append(batch("b"), acks_all=True)
        assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log_end_offset == end
        partition.append(batch("c"))
        assert (partition.log_end_offset, partition.high_watermark) == (end + 1, 0), (
            "acks=1 may write, but the high watermark does not move (KIP-966)"
        )

    simulation.run(node.run(main()))


def test_a_restarted_follower_continues_with_the_saved_high_watermark(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path)
        for value in "abc":
            partition.append(batch(value))
        log, env = partition.log, partition.env
        follower = Partition(log, env, 2)
        follower.become(PartitionState(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=4))
        assert follower.high_watermark == 2
        assert Partition(log, env, 9).high_watermark == 3, "never above the log's end"
        result = follower.read(0, 1_000, committed_only=False)
        assert result.range is not None
        assert [record.value for record in read_records(result.range.read())] == [b"a", b"b"]

    in_real_world(tmp_path, main)


def test_waiters_have_their_own_deadlines() -> None:
    simulation = Simulation(6)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d")
        partition.become(
            PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=1)
        )
        start = node.world.clock.monotonic()
        waits = [
            partition.wait_committed(partition.append(batch("a")).end_offset, start + seconds)
            for seconds in (3, 1, 2)
        ]
        ended = []
        for wait in (waits[1], waits[2], waits[0]):
            with pytest.raises(KafkaError):
                await wait
            ended.append(round(node.world.clock.monotonic() - start, 3))
        assert ended == [1.0, 2.0, 3.0]

    simulation.run(node.run(main()))


def test_a_batch_sent_behind_a_refused_one_is_refused_alike_and_not_out_of_order() -> None:
    """A producer has five batches in flight. The first two came before this broker knew that it
    leads. Sent again in order, a batch that was replicated from the leader before is a duplicate.
    After OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka would send it again in a new epoch."""
    simulation = Simulation(7)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d")
        partition.append(sequenced(4, 0, "a"))
        partition.become(replace(ALONE, leader=2, leader_epoch=4))
        for sequence in (0, 1):
            with pytest.raises(KafkaError) as refused:
                partition.append_produced(sequenced(4, sequence, "a"), acks_all=True)
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.become(replace(ALONE, leader_epoch=5))
        with pytest.raises(KafkaError) as refused:
            partition.append_produced(sequenced(4, 2, "a"), acks_all=True)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "sequence 2 after 0" in refused.value.message
        for sequence in (0, 1, 2):
            partition.append_produced(sequenced(4, sequence, "a"), acks_all=True)
        assert partition.log_end_offset == 3
        await asyncio.sleep(REFUSAL_REMEMBERED_S + 1)
        with pytest.raises(KafkaError) as refused:
            partition.append_produced(sequenced(4, 9, "a"), acks_all=True)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    simulation.run(node.run(main()))


def test_a_batch_behind_a_truncated_one_is_not_out_of_order_when_the_broker_leads_again() -> None:
    """The broker appends the sequences 0 and 1, and loses the leadership before 1 is replicated. It
    truncates 1 and leads again, all before it looks at 2, which the producer sent behind 1."""
    simulation = Simulation(9)
    node = simulation.node("n1")
    two = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4)

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d")
        partition.append_produced(sequenced(4, 0, "a"), acks_all=True)
        partition.become(two)
        partition.append_produced(sequenced(4, 1, "b"), acks_all=True)
        end = partition.log_end_offset
        waiting = partition.wait_committed(end, node.world.clock.monotonic() + 1)
        partition.become(replace(two, leader=2, leader_epoch=5))
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await partition.truncate(5, DivergingEpoch(3, 1))
        assert partition.log_end_offset == 1
        partition.become(replace(two, leader_epoch=6))
        with pytest.raises(KafkaError) as refused:
            partition.append_produced(sequenced(4, 2, "c"), acks_all=True)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for sequence, value in enumerate("abc"):
            partition.append_produced(sequenced(4, sequence, value), acks_all=True)
        assert partition.log_end_offset == 3

    simulation.run(node.run(main()))


def test_a_new_producer_whose_first_batch_was_refused_begins_with_it() -> None:
    """A leader that has never seen the producer would take any sequence for its first, and the
    first batch, sent again, would be out of order."""
    simulation = Simulation(10)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d")
        partition.become(replace(ALONE, leader=2, leader_epoch=4))
        await asyncio.sleep(REFUSAL_REMEMBERED_S + 1)
        with pytest.raises(KafkaError) as refused:
            partition.append_produced(sequenced(4, 0, "a"), acks_all=True)
        partition.become(replace(ALONE, leader_epoch=5))
        with pytest.raises(KafkaError) as refused:
            partition.append_produced(sequenced(4, 1, "b"), acks_all=True)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for sequence, value in enumerate("ab"):
            partition.append_produced(sequenced(4, sequence, value), acks_all=True)
        assert partition.log_end_offset == 2
        await asyncio.sleep(REFUSAL_REMEMBERED_S + 1)
        # The state of a producer expires. Then it goes on where it was.
        partition.append_produced(sequenced(5, 7, "c"), acks_all=True)
        assert partition.log_end_offset == 3

    simulation.run(node.run(main()))


def test_a_batch_behind_one_that_lacked_in_sync_replicas_is_refused_alike() -> None:
    simulation = Simulation(8)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(
            node.world, "/d", replace(SMALL, min_insync_replicas=2)
        )
        two = PartitionState(replicas=(1, 2), isr=(1,), leader=1, leader_epoch=4)
        partition.become(two)
        partition.append_produced(sequenced(4, 0, "a"))
        with pytest.raises(KafkaError) as refused:
            partition.append_produced(sequenced(4, 1, "a"), acks_all=True)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        partition.become(replace(two, isr=(1, 2), partition_epoch=1))
        with pytest.raises(KafkaError) as refused:
            partition.append_produced(sequenced(4, 2, "a"), acks_all=True)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        for sequence in (1, 2):
            partition.append_produced(sequenced(4, sequence, "a"), acks_all=True)
        assert partition.log_end_offset == 3

    simulation.run(node.run(main()))
