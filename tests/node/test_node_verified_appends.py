"""Transactional batches on a leader: the first batch of a transaction waits for its verification,
and batches of a producer keep their order (rule 5) without delaying others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import PartitionState
from penstock.node.partition.partition import Appended, Partition
from penstock.records.build import build_batch
from penstock.records.record import read_records
from penstock.world.sim import Simulation
from tests.log.making import SMALL, batch, marker, sequenced
from tests.node.test_node_partition import ALONE, new_partition

CONFIG = replace(SMALL, segment_bytes=100_000)


class Coordinator:
    """Records who is to be verified, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.answers: list[asyncio.Future[None]] = []

    def verify(self, producer_id: int, epoch: int) -> asyncio.Future[None]:
        self.asked.append((producer_id, epoch))
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return answer

    def accept(self, number: int = -1) -> None:
        self.answers[number].set_result(None)

    def refuse(self, code: ErrorCode, number: int = -1) -> None:
        self.answers[number].set_exception(KafkaError(code, "refused"))


class Leader:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.coordinator = Coordinator()

    def send(
        self,
        value: str,
        sequence: int,
        *,
        producer: int = 1,
        epoch: int = 0,
        adds: bool = False,
        asks: bool = True,
        acks_all: bool = False,
    ) -> Appended | asyncio.Task[Appended]:
        return self.partition.append_transactional(
            sequenced(producer, sequence, value, epoch=epoch, transactional=True),
            acks_all=acks_all,
            adds=adds,
            verify=self.coordinator.verify if asks else None,
        )

    def waits(self, value: str, sequence: int, **kwargs: Any) -> asyncio.Task[Appended]:
        task = self.send(value, sequence, **kwargs)
        assert isinstance(task, asyncio.Task)
        return task

    def mark(self, *, committed: bool = True, epoch: int = 0, producer: int = 1) -> None:
        self.partition.append(marker(producer, committed=committed, epoch=epoch), from_client=False)

    def values(self) -> list[str]:
        log = self.partition.log
        found = log.read(0, 1_000_000, below=log.end_offset)
        records = [] if found is None else read_records(found.read())
        return [(record.value or b"").decode() for record in records if record.key is None]


def run(test: Callable[[Leader], Coroutine[Any, Any, None]], config: LogConfig = CONFIG) -> None:
    simulation = Simulation(1)
    node = simulation.node("n1")

    async def main() -> None:
        partition, _tasks = await new_partition(node.world, "/d", config)
        await test(Leader(partition))

    simulation.run(node.run(main()))


async def code_of(task: asyncio.Task[Appended]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await task
    return refused.value.code


def test_the_first_batch_of_a_transaction_waits_and_the_others_do_not() -> None:
    async def test(leader: Leader) -> None:
        task = leader.waits("a", 0)
        await asyncio.sleep(1)
        assert not task.done()
        leader.coordinator.accept()
        assert (await task).base_offset == 0
        assert isinstance(leader.send("b", 1), Appended)
        assert leader.coordinator.asked == [(1, 0)]
        leader.mark()
        task = leader.waits("c", 2)
        await asyncio.sleep(0)
        leader.coordinator.accept()
        await task
        assert leader.coordinator.asked == [(1, 0), (1, 0)], "each transaction is verified"
        assert leader.values() == ["a", "b", "c"]

    run(test)


def test_pipelined_batches_of_a_producer_keep_their_order() -> None:
    async def test(leader: Leader) -> None:
        tasks = [leader.waits(str(number), number) for number in range(5)]
        await asyncio.sleep(1)
        assert len(leader.coordinator.asked) == 1, "one verification opens the transaction"
        leader.coordinator.accept()
        assert [(await task).base_offset for task in tasks] == [0, 1, 2, 3, 4]
        assert leader.values() == ["0", "1", "2", "3", "4"]

    run(test)


def test_other_producers_and_plain_batches_do_not_wait() -> None:
    async def test(leader: Leader) -> None:
        waiting = leader.waits("waits", 0)
        other = leader.waits("other", 0, producer=2)
        await asyncio.sleep(0)
        leader.coordinator.accept(1)
        await other
        leader.partition.append(batch("plain"))
        leader.partition.append(sequenced(3, 0, "idempotent"))
        assert not waiting.done()
        leader.coordinator.accept(0)
        await waiting
        assert leader.values() == ["other", "plain", "idempotent", "waits"]

    run(test)


def test_a_marker_between_verification_and_append_voids_it() -> None:
    """The abort of the transaction reaches the partition before its first batch (rule 15)."""

    async def test(leader: Leader) -> None:
        task = leader.waits("late", 0)
        await asyncio.sleep(0)
        leader.coordinator.accept()
        leader.mark(committed=False)
        assert await code_of(task) == ErrorCode.INVALID_TXN_STATE
        assert leader.values() == []
        assert leader.partition.last_stable_offset == leader.partition.log_end_offset

    run(test)


def test_the_marker_of_the_previous_transaction_does_not_refuse_the_next_one() -> None:
    """With transaction.version 2 it has the epoch of the next transaction, whose first batch may
    arrive before it."""

    async def test(leader: Leader) -> None:
        task = leader.waits("next", 0, epoch=1, adds=True)
        await asyncio.sleep(0)
        leader.mark(epoch=1)
        leader.coordinator.accept()
        await asyncio.sleep(0.1)
        leader.coordinator.accept()
        await task
        assert leader.coordinator.asked == [(1, 1), (1, 1)]
        assert leader.values() == ["next"]

    run(test)


def test_the_marker_of_the_transaction_itself_refuses_its_late_batch() -> None:
    """With transaction.version 2 it has a newer epoch (rule 15)."""

    async def test(leader: Leader) -> None:
        task = leader.waits("late", 0, epoch=1, adds=True)
        await asyncio.sleep(0)
        leader.mark(epoch=2, committed=False)
        leader.coordinator.accept()
        assert await code_of(task) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert leader.values() == []

    run(test)


def test_batches_behind_one_that_could_not_be_verified_do_not_take_its_place() -> None:
    async def test(leader: Leader) -> None:
        tasks = [leader.waits(str(number), number) for number in range(3)]
        await asyncio.sleep(0)
        leader.coordinator.refuse(ErrorCode.NOT_COORDINATOR)
        assert [await code_of(task) for task in tasks] == [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]
        retried = [leader.waits(str(number), number) for number in range(3)]
        await asyncio.sleep(0)
        leader.coordinator.accept()
        await asyncio.gather(*retried)
        assert leader.values() == ["0", "1", "2"]

    run(test)


def test_each_batch_gets_the_refusal_of_a_transaction_that_does_not_exist() -> None:
    async def test(leader: Leader) -> None:
        tasks = [leader.waits(str(number), number) for number in range(2)]
        for number, task in enumerate(tasks):
            await asyncio.sleep(0.1)
            leader.coordinator.refuse(ErrorCode.TRANSACTION_ABORTABLE, number)
            assert await code_of(task) == ErrorCode.TRANSACTION_ABORTABLE
        assert leader.values() == []

    run(test)


def test_a_loss_of_leadership_ends_the_verification() -> None:
    async def test(leader: Leader) -> None:
        tasks = [leader.waits(str(number), number) for number in range(2)]
        await asyncio.sleep(0)
        lost = PartitionState(replicas=(1, 2), isr=(2,), leader=2, leader_epoch=4)
        leader.partition.become(lost)
        assert [await code_of(task) for task in tasks] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        leader.partition.become(replace(ALONE, leader_epoch=5, partition_epoch=1))
        task = leader.waits("again", 0)
        await asyncio.sleep(0)
        leader.coordinator.accept()
        assert (await task).base_offset == 0

    run(test)


def test_a_verification_does_not_count_for_the_next_leadership() -> None:
    async def test(leader: Leader) -> None:
        partition = leader.partition
        guard = partition.begin_verification(1, 0, adds=True)
        assert guard is not None
        partition.become(PartitionState(replicas=(1, 2), isr=(2,), leader=2, leader_epoch=4))
        for call in (
            lambda: partition.begin_verification(1, 0, adds=True),
            lambda: partition.confirm_verification(guard),
            lambda: partition.check_marker(1, 0, 0, 2),
        ):
            with pytest.raises(KafkaError) as refused:
                call()
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.become(replace(ALONE, leader_epoch=5, partition_epoch=1))
        assert not partition.confirm_verification(guard)

    run(test)


def test_without_verification_the_batch_is_appended_immediately() -> None:
    """transaction.partition.verification.enable=false"""

    async def test(leader: Leader) -> None:
        assert isinstance(leader.send("a", 0, asks=False), Appended)
        assert isinstance(leader.send("b", 1, asks=False), Appended)
        assert leader.coordinator.asked == []

    run(test)


def test_a_client_that_disconnects_does_not_hold_up_the_next_one() -> None:
    async def test(leader: Leader) -> None:
        first = leader.waits("a", 0)
        second = leader.waits("b", 1)
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.wait([first, second])
        retried = leader.waits("a", 0)
        await asyncio.sleep(0)
        leader.coordinator.accept()
        assert (await retried).base_offset == 0

    run(test)


def test_a_repeated_batch_of_an_open_transaction_is_a_duplicate() -> None:
    async def test(leader: Leader) -> None:
        task = leader.waits("a", 0)
        await asyncio.sleep(0)
        leader.coordinator.accept()
        await task
        again = leader.send("a", 0)
        assert isinstance(again, Appended)
        assert (again.duplicate, again.base_offset) == (True, 0)

    run(test)


def test_a_repeated_batch_that_waits_twice_is_appended_once() -> None:
    """The client has timed out and sends the batch on a new connection (rule 4)."""

    async def test(leader: Leader) -> None:
        tasks = [leader.waits("a", 0), leader.waits("a", 0)]
        await asyncio.sleep(0)
        leader.coordinator.accept()
        assert [(await task).duplicate for task in tasks] == [False, True]
        assert leader.values() == ["a"]

    run(test)


def test_a_newer_epoch_is_verified_behind_the_older_one() -> None:
    async def test(leader: Leader) -> None:
        old, new = leader.waits("old", 0), leader.waits("new", 0, epoch=1)
        await asyncio.sleep(0.1)
        leader.coordinator.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
        assert await code_of(old) == ErrorCode.INVALID_PRODUCER_EPOCH
        await asyncio.sleep(0.1)
        leader.coordinator.accept()
        await new
        assert leader.coordinator.asked == [(1, 0), (1, 1)]
        assert leader.values() == ["new"]

    run(test)


def test_batches_that_are_opened_in_the_child_keep_their_order_after_the_verification() -> None:
    """The topic has its own codec. A marker may come while the batch is being opened."""

    async def test(leader: Leader) -> None:
        large = build_batch(
            [(None, b"x" * 50_000, (), 1)],
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        first = leader.partition.append_transactional(
            large, acks_all=False, adds=False, verify=leader.coordinator.verify
        )
        second = leader.waits("small", 1)
        assert isinstance(first, asyncio.Task)
        await asyncio.sleep(0)
        leader.coordinator.accept()
        assert ((await first).base_offset, (await second).base_offset) == (0, 1)

    run(test, replace(CONFIG, compression_type="gzip"))


def test_too_few_replicas_in_sync_refuse_the_batch_after_its_verification() -> None:
    async def test(leader: Leader) -> None:
        leader.partition.become(replace(ALONE, replicas=(1, 2), leader_epoch=4, partition_epoch=1))
        task = leader.waits("a", 0, acks_all=True)
        await asyncio.sleep(0)
        leader.coordinator.accept()
        assert await code_of(task) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert leader.values() == []

    run(test, replace(CONFIG, min_insync_replicas=2))


def test_garbage_is_refused_as_without_a_transaction() -> None:
    async def test(leader: Leader) -> None:
        whole = sequenced(1, 0, "a", transactional=True)
        for cut in (whole[:30], whole[:61]):
            with pytest.raises(KafkaError) as refused:
                await leader.partition.append_transactional(  # type: ignore[misc]
                    cut, acks_all=False, adds=False, verify=None
                )
            assert refused.value.code is ErrorCode.INVALID_RECORD
        nobody = build_batch([(None, b"x", (), 1)], transactional=True)
        with pytest.raises(KafkaError) as refused:
            leader.partition.append_transactional(
                nobody, acks_all=False, adds=True, verify=leader.coordinator.verify
            )
        assert refused.value.code is ErrorCode.INVALID_RECORD
        assert leader.coordinator.asked == []

    run(test)


def test_the_last_stable_offset_is_not_before_the_log_start() -> None:
    """DeleteRecords may remove the beginning of an open transaction."""

    async def test(leader: Leader) -> None:
        leader.send("a", 0, asks=False)
        leader.partition.append(batch("b", "c"))
        assert leader.partition.last_stable_offset == 0
        leader.partition.delete_records(2)
        assert leader.partition.last_stable_offset == 2
        result = leader.partition.read(2, 1000, committed_only=True)
        assert (result.range, result.last_stable_offset, result.log_start_offset) == (None, 2, 2)
        leader.mark()
        assert leader.partition.last_stable_offset == leader.partition.log_end_offset

    run(test)


def test_read_committed_stops_before_an_open_transaction() -> None:
    """Rule 8: also if the consumer asks for an offset beyond it."""

    async def test(leader: Leader) -> None:
        partition = leader.partition
        partition.append(batch("a"))
        leader.send("b", 0, asks=False)
        partition.append(batch("c"))
        for offset, count in ((0, 1), (1, 0), (2, 0), (3, 0)):
            result = partition.read(offset, 1000, committed_only=True)
            found = b"" if result.range is None else result.range.read()
            assert (len(list(read_records(found))), result.last_stable_offset) == (count, 1)
        leader.mark(committed=False)
        result = partition.read(0, 1000, committed_only=True)
        assert (result.last_stable_offset, result.aborted) == (4, [(1, 1)])

    run(test)
