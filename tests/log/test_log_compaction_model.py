"""Random keyed writes, tombstones and transactions, compacted at random moments, compared with a
dict: no record that a reader must see is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.log.compaction.run import Pace
from penstock.log.log import Log
from penstock.log.producers.replay import snapshot_offsets, snapshot_path
from penstock.log.store import LogStore
from penstock.records.compression import Codec
from penstock.records.record import Record
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.compacting import COMPACTED, committed, compact, keyed, last_values
from tests.log.making import PARTITION, TOPIC_ID, marker, open_store, records

PLAIN, IDEMPOTENT, TRANSACTIONAL, OTHER_TRANSACTIONAL = -1, 7, 100, 101
SMALL_MAP = Pace(map_bytes=700)

keyed_records = st.lists(
    st.tuples(
        st.sampled_from("abcdefghij"), st.one_of(st.none(), st.text("xyz", min_size=1, max_size=30))
    ),
    min_size=1,
    max_size=6,
)
steps = st.one_of(
    st.tuples(
        st.just("write"),
        st.sampled_from((PLAIN, IDEMPOTENT, TRANSACTIONAL, OTHER_TRANSACTIONAL)),
        keyed_records,
        st.sampled_from(list(Codec)),
    ),
    st.tuples(st.just("end"), st.sampled_from((TRANSACTIONAL, OTHER_TRANSACTIONAL)), st.booleans()),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from((0.2, 2.0))),
)


@dataclass
class Model:
    log: Log
    sequences: dict[int, int] = field(default_factory=dict)
    # Every record written, and whether it is visible: immediately, or when its transaction is
    # committed.
    written: dict[int, Record] = field(default_factory=dict)
    open: dict[int, list[Record]] = field(default_factory=dict)
    visible: list[Record] = field(default_factory=list)

    def write(self, producer: int, some: list[tuple[str, str | None]], codec: Codec) -> None:
        transactional = producer >= TRANSACTIONAL
        sequence = self.sequences.get(producer, 0)
        batch = keyed(
            *some,
            codec=codec,
            producer=producer,
            sequence=-1 if producer == PLAIN else sequence,
            transactional=transactional,
        )
        before = self.log.end_offset
        self.log.append_as_leader(batch, 0)
        self.sequences[producer] = sequence + len(some)
        new = records(self.log, before)
        self.written |= {record.offset: record for record in new}
        (self.open.setdefault(producer, []) if transactional else self.visible).extend(new)

    def end(self, producer: int, *, commit: bool) -> None:
        if producer not in self.open:
            return
        self.log.append_as_leader(marker(producer, committed=commit), 0, from_client=False)
        ended = self.open.pop(producer)
        if commit:
            self.visible += ended

    def check(self, log: Log) -> None:
        seen = committed(log)
        assert [record.offset for record in seen] == sorted({record.offset for record in seen})
        assert all(self.written[record.offset] == record for record in seen)
        # An open transaction holds the reader back: records after its first one are not stable.
        bound = min((some[0].offset for some in self.open.values()), default=log.end_offset)
        expected = sorted(
            (record for record in self.visible if record.offset < bound),
            key=lambda record: record.offset,
        )
        assert last_values([record for record in seen if record.offset < bound]) == last_values(
            expected
        )
        below = [record.key for record in seen if record.offset < (log.clean_offset or 0)]
        assert len(below) == len(set(below)), "a key has two records in the compacted part"


def in_simulation(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    simulation = Simulation(1)
    node = simulation.node("n1")
    simulation.run(node.run(main(node.world)))


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
# The aborted transaction ends before the dirty part of the second compaction.
@example(
    [
        ("write", 101, [("a", None)], Codec.NONE),
        ("end", 101, False),
        ("write", -1, [("a", None)], Codec.NONE),
        ("compact", False),
        ("write", 101, [("a", None)], Codec.NONE),
        ("end", 101, True),
    ]
)
def test_readers_see_the_last_value_of_every_key(done: list[tuple[object, ...]]) -> None:
    async def main(world: World) -> None:
        store = await open_store(world, "/data", COMPACTED)
        model = Model(store.create(PARTITION, TOPIC_ID, COMPACTED))
        model.log.make_files()
        for step in done:
            await act(store, model, step)
        await compact(store, model.log)
        model.check(model.log)
        await check_reopened(world, store, model)

    in_simulation(main)


async def act(store: LogStore, model: Model, step: tuple[object, ...]) -> None:
    match step:
        case ("write", int(producer), list(some), Codec() as codec):
            model.write(producer, some, codec)
        case ("end", int(producer), bool(commit)):
            model.end(producer, commit=commit)
        case ("compact", bool(small)):
            await compact(store, model.log, SMALL_MAP if small else None)
            model.check(model.log)
        case ("wait", float(seconds)):
            await asyncio.sleep(seconds)


async def check_reopened(world: World, store: LogStore, model: Model) -> None:
    """After a crash, and without snapshots: the log alone gives the producer state."""
    log = model.log
    await store.offsets.save_recovery_points()
    expected = {
        number: (producer.epoch, producer.last_sequence)
        for number, producer in log.producers.producers.items()
    }
    for offset in snapshot_offsets(world.disk, log.path):
        world.disk.remove(snapshot_path(log.path, offset))
    again = (await open_store(world, "/data", COMPACTED)).logs[PARTITION]
    assert again.end_offset == log.end_offset
    assert again.clean_offset == log.clean_offset
    model.check(again)
    found = {
        number: (producer.epoch, producer.last_sequence)
        for number, producer in again.producers.producers.items()
    }
    assert {number: found[number] for number in expected} == expected
