"""A crash at every change that a compaction makes to the disk leaves the log before or after it,
never a mix."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from itertools import pairwise

import pytest

from penstock.log.compaction.run import Pace
from penstock.log.log import Log
from penstock.log.store import LogStore
from penstock.records.record import Record
from penstock.world import World
from penstock.world.sim import Node, NodeCrashed, Simulation
from tests.log.compacting import COMPACTED, committed, compact, keyed, last_values, stable_offset
from tests.log.making import PARTITION, TOPIC_ID, marker, open_store

MOST_CHANGES = 2_000


def fill(log: Log) -> None:
    """Several groups of segments with a tombstone in a later group than the record it deletes, and
    an aborted transaction."""
    for number in range(14):
        log.append_as_leader(keyed((f"k{number % 5}", f"v{number}"), ("gone", f"v{number}")), 0)
        if number == 6:
            log.append_as_leader(
                keyed(("k1", "aborted"), producer=6, sequence=0, transactional=True), 0
            )
            log.append_as_leader(marker(6, committed=False), 0, from_client=False)
    log.append_as_leader(keyed(("gone", None)), 0)
    log.append_as_leader(keyed(*((f"filler{number}", "x" * 40) for number in range(5))), 0)
    log.roll()


async def compact_twice(store: LogStore, log: Log) -> None:
    """The second run, after the delete horizon, removes the tombstone."""
    for _run in range(2):
        await store.compactions.run_once({PARTITION: stable_offset(log)}, Pace())
        await asyncio.sleep(2)
        with contextlib.suppress(FileNotFoundError):
            await store.remove_due_files()
        log.append_as_leader(keyed(("k0", "new")), 0)
        log.roll()
        await log.flushing.all()


class Crash:
    """One crash after a number of changes to the disk, and the checks after it."""

    def __init__(self, changes: int, *, power_loss: bool, again: int | None) -> None:
        self.changes = changes
        self.power_loss = power_loss
        self.again = again
        self.expected: dict[bytes, bytes] = {}
        self.offsets: dict[int, Record] = {}
        self.ended = False

    def run(self) -> None:
        simulation = Simulation(self.changes)
        simulation.run(self._main(simulation.node("n1")))

    async def _main(self, node: Node) -> None:
        await node.run(self._live(node.world, node))
        node.crash(power_loss=self.power_loss)
        if self.again is not None:
            await self._crash_in_recovery(node, self.again)
        await node.run(self._check(node.restart()))

    async def _live(self, world: World, node: Node) -> None:
        store = await open_store(world, "/data", COMPACTED)
        log = store.create(PARTITION, TOPIC_ID, COMPACTED)
        fill(log)
        await log.flushing.all()
        await store.offsets.save_recovery_points()
        self.expected = last_values(committed(log))
        self.offsets = {record.offset: record for record in committed(log)}
        node.drive.stop_after(self.changes)
        with contextlib.suppress(NodeCrashed):
            await compact_twice(store, log)
            self.ended = True

    async def _crash_in_recovery(self, node: Node, changes: int) -> None:
        world = node.restart()
        node.drive.stop_after(changes)
        with contextlib.suppress(NodeCrashed):
            await node.run(open_store(world, "/data", COMPACTED))
        node.crash(power_loss=self.power_loss)

    async def _check(self, world: World) -> None:
        store = await open_store(world, "/data", COMPACTED)
        log = store.logs[PARTITION]
        self._check_records(log)
        leftover = [
            name
            for name in world.disk.list(log.path)
            if name.endswith((".cleaned", ".swap", ".deleted"))
        ]
        assert leftover == []
        # Files that the crash left and that were overlooked would become part of the next one.
        log.append_as_leader(keyed(("k0", "new")), 0)
        await compact(store, log)
        self._check_records(log)

    def _check_records(self, log: Log) -> None:
        assert all(
            segment.end_offset() <= following.base_offset
            for segment, following in pairwise(log.segments)
        ), "segments overlap"
        found = committed(log)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        table = last_values(found)
        assert {**table, b"k0": b""} == {**self.expected, b"k0": b""}, (
            "a key lost its last value, or a deleted key reappeared"
        )
        assert table[b"k0"] in (self.expected[b"k0"], b"new")
        old = [record for record in found if record.offset in self.offsets]
        assert all(self.offsets[record.offset] == record for record in old)


def at_every_change(make: Callable[[int], Crash], first: int = 0, step: int = 1) -> int:
    """Return the number of changes to the disk."""
    for changes in range(first, MOST_CHANGES, step):
        crash = make(changes)
        crash.run()
        if crash.ended:
            return changes
    raise AssertionError("the compaction never came to its end")


# A power failure loses a random part of the earlier changes, so not every change needs a crash.
@pytest.mark.parametrize(("power_loss", "step"), [(False, 1), (True, 3)])
def test_a_crash_at_every_change_leaves_a_valid_log(power_loss: bool, step: int) -> None:
    assert (
        at_every_change(
            lambda changes: Crash(changes, power_loss=power_loss, again=None), step=step
        )
        > 80
    )


@pytest.mark.parametrize("again", [1, 4])
def test_a_crash_while_a_swap_is_finished_leaves_a_valid_log(again: int) -> None:
    at_every_change(lambda changes: Crash(changes, power_loss=True, again=again), again, 7)
