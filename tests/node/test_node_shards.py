"""The shard runtime over a real partition, with a key-value machine: atomic steps, replies and
effects after the commit, batches of transactions, loading and unloading."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.config.topic import LogConfig
from penstock.coordinator.runtime.step import Now, Step, Ticket
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage, PartitionState
from penstock.node.partition.partition import Partition
from penstock.node.shards import shard
from penstock.node.shards.loading import ShardLoader
from penstock.node.shards.shard import Shard
from penstock.records.batch import batches
from penstock.records.compression import Codec
from penstock.world import World
from penstock.world.real import real_world
from penstock.world.sim import Simulation
from tests.coordinator.kv_machine import KEYS_PER_STEP, KvMachine
from tests.log.making import in_real_world
from tests.node.test_node_partition import new_partition

CONFIG = LogConfig(max_message_bytes=1_000)
# Commits need broker 2, which the test plays.
PAIR = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=1)

Kv = Shard[KvMachine, bytes]


class Run:
    """A shard in one leader epoch. `commit` acknowledges the whole log as broker 2."""

    def __init__(self, world: World, partition: Partition) -> None:
        self.world = world
        self.partition = partition
        self.effects: list[bytes] = []
        self.failures = 0
        self.shard = self.new_shard()

    def new_shard(self) -> Kv:
        def failed() -> None:
            self.failures += 1

        return Shard(
            self.world,
            self.partition,
            KvMachine(),
            commit_timeout_s=5.0,
            codec=Codec.NONE,
            on_failed=failed,
            perform=self.effects.append,
        )

    async def load(self) -> Kv:
        self.shard = self.new_shard()
        await self.shard.load(ShardLoader(self.world))
        return self.shard

    @property
    def machine(self) -> KvMachine:
        return self.shard.machine

    def ask(self, request: Callable[[KvMachine, Ticket, Now], Step[bytes]]) -> Any:
        """Return the reply, a future of it, or the KafkaError of a refused request."""
        try:
            return self.shard.decide(request, lambda error: error)
        except KafkaError as error:
            return error

    def put(self, *records: tuple[bytes, bytes]) -> Any:
        return self.ask(lambda machine, ticket, now: machine.put(records, ticket, now))

    def expire_at(self, due_ms: int) -> Any:
        return self.ask(lambda machine, ticket, now: machine.expire_at(due_ms, ticket, now))

    def verify(self, producer_id: int, epoch: int) -> None:
        """Let the next transactional batch of a producer begin a transaction."""
        guard = self.partition.begin_verification(producer_id, epoch, adds=True)
        assert guard is None or self.partition.confirm_verification(guard)

    def commit(self) -> None:
        end, epoch = self.partition.log_end_offset, self.partition.leader_epoch
        self.partition.follower_fetched(2, -1, end, epoch, 0)

    def batches(self) -> list[Any]:
        """Return the headers of all batches in the log."""
        end = self.partition.log_end_offset
        read = self.partition.log.read(0, 1_000_000, below=end)
        return [] if read is None else [header for _position, header in batches(read.read())]


def run(
    test: Callable[[Run], Coroutine[Any, Any, None]],
    state: PartitionState = PAIR,
    config: LogConfig = CONFIG,
) -> None:
    simulation = Simulation(1)
    node = simulation.node("n1")

    async def main() -> None:
        opened, _tasks = await new_partition(node.world, "/d", config)
        opened.become(state)
        current = Run(node.world, opened)
        assert current.shard.load_empty()
        await test(current)

    simulation.run(node.run(main()))


def pending(reply: Any) -> asyncio.Future[Any]:
    assert isinstance(reply, Awaitable)
    return asyncio.ensure_future(reply)


def test_replies_and_effects_leave_only_after_the_commit() -> None:
    async def test(current: Run) -> None:
        reply = pending(current.put((b"a", b"1")))
        assert current.machine.values == {b"a": b"1"}
        await asyncio.sleep(1)
        assert (reply.done(), current.effects) == (False, [])
        current.commit()
        assert await reply == "ok"
        await asyncio.sleep(0)
        assert current.effects == [b"a"]

    run(test)


def test_a_read_waits_for_the_commit_of_what_it_saw() -> None:
    async def test(current: Run) -> None:
        written = pending(current.put((b"a", b"1")))
        seen = current.shard.read(lambda machine: machine.values.get(b"a"), lambda _error: None)
        read = pending(seen)
        await asyncio.sleep(1)
        assert not read.done()
        current.commit()
        assert (await written, await read) == ("ok", b"1")

    run(test)


def test_an_effect_whose_commit_takes_longer_than_the_timeout_is_still_carried_out() -> None:
    """A reply becomes an error, since its client gives up; an effect must not be lost."""

    async def test(current: Run) -> None:
        refused = await current.put((b"a", b"1"))
        assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert current.effects == []
        current.commit()
        await asyncio.sleep(0.01)
        assert current.effects == [b"a"]
        assert current.put((b"b", b"1")) != refused

    run(test)


def test_an_oversized_step_is_refused_to_its_sender_and_changes_nothing() -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.commit()
        watching = pending(current.ask(lambda machine, ticket, now: machine.watch(ticket, now)))
        end = current.partition.log_end_offset
        refused = current.put((b"a", b"2"), (b"large", bytes(2_000)))
        assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "max.message.bytes of orders is 1000" in refused.message
        assert current.machine.values == {b"a": b"1"}
        assert (current.partition.log_end_offset, current.failures) == (end, 0)
        await asyncio.sleep(1)
        assert not watching.done(), "the watcher still waits for a put that is accepted"
        accepted = pending(current.put((b"b", b"3")))
        current.commit()
        assert (await accepted, await watching) == ("ok", "changed")
        assert current.shard.loaded

    run(test)


def test_a_step_larger_than_a_segment_is_refused() -> None:
    async def test(current: Run) -> None:
        refused = current.put((b"large", bytes(800)))
        assert refused.code is ErrorCode.RECORD_LIST_TOO_LARGE
        assert (current.machine.values, current.failures) == ({}, 0)

    run(test, config=replace(CONFIG, segment_bytes=500))


def test_a_step_is_one_batch() -> None:
    async def test(current: Run) -> None:
        current.put(*((str(key).encode(), b"v") for key in range(20)))
        (header,) = current.batches()
        assert (header.record_count, header.producer_id) == (20, -1)

    run(test)


def test_transactional_batches_and_markers_are_written_and_replayed_with_their_flags() -> None:
    async def test(current: Run) -> None:
        def put(value: bytes) -> Callable[[KvMachine, Ticket, Now], Step[bytes]]:
            return lambda machine, ticket, now: machine.put_in_transaction(
                7, 0, b"a", value, ticket, now
            )

        def end(commit: bool) -> Callable[[KvMachine, Ticket, Now], Step[bytes]]:
            return lambda machine, ticket, now: machine.end_transaction(7, 0, commit, ticket, now)

        current.put((b"a", b"0"))
        for request in (put(b"1"), put(b"2"), end(True), put(b"3"), end(False), put(b"4")):
            current.verify(7, 0)
            current.ask(request)
        kinds = [
            (header.producer_id, header.is_transactional, header.is_control)
            for header in current.batches()
        ]
        data, marker = (7, True, False), (7, True, True)
        assert kinds == [(-1, False, False), data, data, marker, data, marker, data]
        current.commit()
        live = current.machine
        loaded = (await current.load()).machine
        assert loaded.values == live.values == {b"a": b"2"}
        assert loaded.pending == live.pending == {7: {b"a": b"4"}}
        flags = [
            (record.value, batch.producer_id, batch.producer_epoch, batch.transactional)
            for record, batch in loaded.replayed
        ]
        assert flags == [(b"2", -1, -1, False), (b"4", 7, 0, True)], "ended ones are resolved"
        assert current.partition.last_stable_offset == current.partition.log_end_offset - 1

    run(test)


def test_a_fenced_producer_epoch_refuses_the_step_and_not_the_shard() -> None:
    async def test(current: Run) -> None:
        def put(epoch: int) -> Callable[[KvMachine, Ticket, Now], Step[bytes]]:
            return lambda machine, ticket, now: machine.put_in_transaction(
                7, epoch, b"a", b"1", ticket, now
            )

        current.verify(7, 3)
        current.ask(put(3))
        assert current.ask(put(2)).code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert current.failures == 0
        assert current.machine.pending == {7: {b"a": b"1"}}

    run(test)


def test_a_transaction_that_was_not_verified_refuses_the_step_and_not_the_shard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(current: Run) -> None:
        refused = current.ask(
            lambda machine, ticket, now: machine.put_in_transaction(7, 0, b"a", b"1", ticket, now)
        )
        assert refused.code is ErrorCode.INVALID_TXN_STATE
        assert (current.failures, current.machine.pending) == (0, {})

    run(test)
    assert caplog.messages == [], "clients cause it, and there is nothing to do"


def test_expiry_is_cut_into_steps_of_bounded_size() -> None:
    async def test(current: Run) -> None:
        count = 50 * KEYS_PER_STEP + 1
        for key in range(count):
            current.put((f"{key:04}".encode(), b"v"))
        before = len(current.batches())
        due_ms = int(current.world.clock.monotonic() * 1000) + 100
        current.commit()
        current.expire_at(due_ms)
        await asyncio.sleep(1)
        assert current.machine.values == {}
        counts = [header.record_count for header in current.batches()[before:]]
        assert counts == [KEYS_PER_STEP] * 50 + [1]

    run(test)


def test_due_work_yields_to_the_event_loop_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard, "MAX_DUE_S", 0.0)

    async def test(current: Run) -> None:
        for number in range(5 * KEYS_PER_STEP):
            current.put((b"%d" % number, b"1"))
        current.commit()
        before = len(current.batches())
        current.expire_at(0)
        current.shard._timer_fired()
        assert len(current.batches()) == before + 1
        await asyncio.sleep(1)
        assert current.machine.values == {}

    run(test)


def test_due_work_waits_while_too_few_replicas_are_in_sync() -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.commit()
        due_ms = int(current.world.clock.monotonic() * 1000) + 100
        current.expire_at(due_ms)
        current.partition.become(replace(PAIR, isr=(1,), partition_epoch=2))
        await asyncio.sleep(2)
        assert current.machine.values == {b"a": b"1"}
        assert current.put((b"b", b"1")).code is ErrorCode.NOT_ENOUGH_REPLICAS
        current.partition.become(replace(PAIR, partition_epoch=3))
        await asyncio.sleep(2)
        assert current.machine.values == {}

    run(test, config=replace(CONFIG, min_insync_replicas=2))


def test_no_deadline_passes_while_too_few_replicas_are_in_sync() -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.commit()
        due_ms = int(current.world.clock.monotonic() * 1000) + 10_000
        current.expire_at(due_ms)
        await asyncio.sleep(4)
        current.partition.become(replace(PAIR, isr=(1,), partition_epoch=2))
        for _ in range(10):
            assert current.put((b"b", b"1")).code is ErrorCode.NOT_ENOUGH_REPLICAS
            await asyncio.sleep(30)
        current.partition.become(replace(PAIR, partition_epoch=3))
        await asyncio.sleep(5)
        assert current.machine.values == {b"a": b"1"}
        await asyncio.sleep(2)
        assert current.machine.values == {}

    run(test, config=replace(CONFIG, min_insync_replicas=2))


def test_a_shard_that_cannot_write_looks_at_its_replicas_twice_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.commit()
        current.expire_at(0)
        current.partition.become(replace(PAIR, isr=(1,), partition_epoch=2))
        fired: list[float] = []
        timer_fired = current.shard._timer_fired

        def note_and_fire() -> None:
            fired.append(current.world.clock.monotonic())
            timer_fired()

        monkeypatch.setattr(current.shard, "_timer_fired", note_and_fire)
        for _ in range(100):
            await asyncio.sleep(0.1)
            current.shard.decide(
                lambda machine, ticket, now: machine.expire_at(0, ticket, now),
                lambda error: error,
                needs_writes=False,
            )
        assert 18 <= len(fired) <= 22

    run(test, config=replace(CONFIG, min_insync_replicas=2))


def test_a_refused_due_step_does_not_stop_due_work() -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.commit()
        watching = pending(current.ask(lambda machine, ticket, now: machine.watch(ticket, now)))
        current.machine.due_value = bytes(2_000)
        due_ms = int(current.world.clock.monotonic() * 1000) + 100
        current.expire_at(due_ms)
        await asyncio.sleep(1)
        assert (await watching).code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (current.machine.values, current.failures) == ({}, 0)

    run(test)


def test_a_refused_step_of_an_image_does_not_refuse_the_next_request() -> None:
    async def test(current: Run) -> None:
        current.machine.due_value = bytes(2_000)
        current.shard.image_changed(MetadataImage(offset=1))
        pending(current.put((b"a", b"1")))
        assert len(current.machine.images) == 1
        assert current.machine.values == {b"a": b"1"}

    run(test)


def test_unloading_refuses_waiting_requests_and_drops_uncommitted_effects() -> None:
    async def test(current: Run) -> None:
        reply = pending(current.put((b"a", b"1")))
        watching = pending(current.ask(lambda machine, ticket, now: machine.watch(ticket, now)))
        current.shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "moved"))
        assert [(await request).code for request in (reply, watching)] == [
            ErrorCode.NOT_COORDINATOR
        ] * 2
        current.commit()
        await asyncio.sleep(6)
        assert current.effects == []
        assert current.put((b"b", b"1")).code is ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_partition_lost_in_the_middle_of_a_step_sends_no_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(current: Run) -> None:
        append = current.partition.append

        def append_and_resign(_partition: Partition, records: bytes, **options: Any) -> Any:
            appended = append(records, **options)
            current.partition.become(replace(PAIR, leader=2, leader_epoch=5, partition_epoch=2))
            return appended

        monkeypatch.setattr(Partition, "append", append_and_resign)
        assert current.put((b"a", b"1")).code is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(6)
        assert current.effects == []

    run(test)


def test_another_leader_epoch_fences_the_shard() -> None:
    async def test(current: Run) -> None:
        current.partition.become(replace(PAIR, leader_epoch=5, partition_epoch=2))
        assert current.put((b"a", b"1")).code is ErrorCode.NOT_COORDINATOR
        assert current.partition.log_end_offset == 0

    run(test)


@pytest.mark.parametrize("cause", ["machine", "storage"])
def test_a_failed_shard_is_unloaded_and_loads_what_the_log_has(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.commit()
        watching = pending(current.ask(lambda machine, ticket, now: machine.watch(ticket, now)))
        if cause == "machine":
            refused = current.ask(lambda machine, ticket, now: machine.fail(ticket, now))
            assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            full = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
            monkeypatch.setattr(Partition, "append", partial(_raise, full))
            assert current.put((b"b", b"2")).code is ErrorCode.KAFKA_STORAGE_ERROR
            monkeypatch.undo()
        assert isinstance(await watching, KafkaError)
        assert (current.failures, current.shard.leads) == (1, False)
        await current.load()
        assert current.machine.values == {b"a": b"1"}
        assert current.machine.loaded_at is not None

    run(test)


def _raise(error: Exception, *_args: Any, **_options: Any) -> None:
    raise error


def test_a_refusal_of_the_machine_reaches_the_sender() -> None:
    async def test(current: Run) -> None:
        refused = current.ask(lambda machine, ticket, now: machine.refuse(ticket, now))
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert (current.failures, current.shard.leads) == (0, True)

    run(test)


def test_a_shard_is_loaded_only_when_its_log_is_committed() -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.shard = current.new_shard()
        assert not current.shard.load_empty()
        loading = asyncio.ensure_future(current.shard.load(ShardLoader(current.world)))
        await asyncio.sleep(1)
        assert current.put((b"b", b"1")).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        current.commit()
        await loading
        assert current.machine.values == {b"a": b"1"}

    run(test)


def test_only_the_last_plain_record_of_a_key_is_replayed() -> None:
    async def test(current: Run) -> None:
        for value in (b"1", b"2", b"3"):
            current.put((b"a", value), (b"b", value))
        current.expire_at(0)
        current.commit()
        await asyncio.sleep(0.1)
        current.put((b"b", b"4"))
        current.commit()
        machine = (await current.load()).machine
        assert [(record.key, record.value) for record, _batch in machine.replayed] == [(b"b", b"4")]

    run(test)


def test_an_image_reaches_a_machine_without_state_with_the_next_request() -> None:
    async def test(current: Run) -> None:
        first, second = MetadataImage(offset=1), MetadataImage(offset=2)
        current.shard.image_changed(first)
        assert current.machine.images == []
        current.put((b"a", b"1"))
        assert current.machine.images == [first]
        current.shard.image_changed(second)
        assert current.machine.images == [first, second]

    run(test)


def test_a_refused_step_of_due_work_does_not_stop_the_timer() -> None:
    """Other deadlines of the shard, and the retry of the refused one, must still come."""

    async def test(current: Run) -> None:
        for key in range(KEYS_PER_STEP + 1):
            current.put((str(key).encode() * 200, b"1"))
        current.commit()
        now_ms = int(current.world.clock.monotonic() * 1000)
        current.expire_at(now_ms + 100)
        # One step removes several keys, and its batch is too large now.
        current.partition.config = replace(CONFIG, max_message_bytes=500)
        await asyncio.sleep(1)
        assert len(current.machine.values) == KEYS_PER_STEP + 1
        current.partition.config = CONFIG
        await asyncio.sleep(3_600)
        assert current.machine.values == {}

    run(test)


def test_a_shard_is_loaded_below_min_insync_and_writes_when_it_is_lowered() -> None:
    async def test(current: Run) -> None:
        current.put((b"a", b"1"))
        current.commit()
        shrunk = replace(PAIR, isr=(1,), partition_epoch=2)
        current.partition.become(shrunk)
        current.partition.config = replace(CONFIG, min_insync_replicas=2)
        await asyncio.wait_for(current.load(), 60)
        assert current.machine.loaded_at is not None
        assert current.shard.read(lambda machine: machine.values, lambda _error: {}) == {b"a": b"1"}
        assert current.put((b"b", b"1")).code is ErrorCode.NOT_ENOUGH_REPLICAS
        current.partition.config = CONFIG
        assert current.put((b"b", b"1")) == "ok"

    run(test)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio", "sim"])
def test_deadlines_that_are_near_or_replaced_are_kept_on_every_event_loop(
    loop: str, tmp_path: Path
) -> None:
    """uvloop returns a handle without `when` for a deadline that is less than 0.5 ms away."""

    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path, CONFIG)
        current = Run(world, partition)
        assert current.shard.load_empty()
        for delay_ms in (60_000, 1, 0, -1):
            current.put((b"a", b"1"))
            due_ms = int(world.clock.monotonic() * 1000) + delay_ms
            current.expire_at(due_ms)
        async with asyncio.timeout(30):
            while current.machine.values:
                await asyncio.sleep(0.001)

    if loop == "sim":
        simulation = Simulation(1)
        node = simulation.node("n1")
        simulation.run(node.run(main(node.world, "/d")))
    elif loop == "uvloop":
        in_real_world(tmp_path, main)
    else:
        asyncio.run(main(real_world(), str(tmp_path)))


def test_no_code_asks_a_timer_for_its_time() -> None:
    """Event loops differ in it; the code that sets a timer remembers its deadline."""
    source = Path(penstock.__file__).parent
    asking = [path for path in source.rglob("*.py") if re.search(r"\w\.when\(\)", path.read_text())]
    assert asking == []
