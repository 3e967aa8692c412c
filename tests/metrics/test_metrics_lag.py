"""The lag of groups: from the broker's own replicas, and from the leaders of other partitions."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Container, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock import limits
from penstock.coordinator.offsets.committed import Committed
from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.ids import TopicPartition
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, page
from penstock.metrics.turn import Turn
from penstock.node.metrics import positions as positions_module
from penstock.node.metrics.lag import LagSource
from penstock.node.metrics.positions import Positions
from penstock.records.batch import BatchHeader, read_header
from penstock.records.build import build_batch
from tests.metrics.scrape import Page, parsed, value

NOW_MS = 3_601_000
NODE = 1


class Clock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def monotonic(self) -> float:
        return self.ms / 1000

    def now_ms(self) -> int:
        return self.ms


class Offload:
    async def read(self, call: Callable[[], Any]) -> Any:
        return call()


class Log:
    """A log whose records are not in memory until they are read, if it is cold."""

    def __init__(self, timestamp: int, *, cold: bool = False, damaged: bool = False) -> None:
        self.timestamp, self.cold, self.damaged = timestamp, cold, damaged
        self.start_offset = 0
        self.reads = 0
        self.markers: Container[int] = ()
        self.looked_at: list[int] = []
        self.directory = SimpleNamespace(path="/logs", failure=None)

    def header_at(self, offset: int, *, at_once: bool) -> BatchHeader:
        assert at_once
        if self.cold:
            raise NotInMemory(self.warm)
        self.looked_at.append(offset)
        records = [(None, b"", (), self.timestamp)]
        control = offset in self.markers
        return read_header(build_batch(records, base_offset=offset, control=control))

    def warm(self) -> None:
        self.reads += 1
        if self.damaged:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged")
        self.cold = False


class Replica:
    def __init__(self, log: Log, high_watermark: int = 10) -> None:
        self.log = log
        self.high_watermark = high_watermark
        self.state = SimpleNamespace(leader=2, isr=(NODE, 2))
        self.directory = log.directory


class Remote:
    """Leaders elsewhere: all their partitions end at 10, and their records are a minute old."""

    def __init__(self) -> None:
        self.refreshed: dict[TopicPartition, list[int]] = {}

    async def refresh(self, wanted: dict[TopicPartition, list[int]], _turn: Turn) -> Any:
        self.refreshed = wanted
        return {name: 10 for name in wanted if name.topic != "unanswered"}

    def age_s(self, _name: TopicPartition, _offset: int) -> float:
        return 60.0


class Lags:
    """A source of the lag of groups with these committed offsets and replicas."""

    def __init__(
        self,
        groups: Mapping[str, Mapping[TopicPartition, int]],
        replicas: Mapping[TopicPartition, Replica],
    ) -> None:
        self.clock = Clock()
        self.remote = Remote()
        self.committed = {
            group: {name: Committed(offset, -1, "", 0) for name, offset in offsets.items()}
            for group, offsets in groups.items()
        }
        offsets = SimpleNamespace(of_group=lambda group: self.committed[group])
        machine = SimpleNamespace(groups=SimpleNamespace(by_id=self.committed, offsets=offsets))
        self.replicas = replicas
        world: Any = SimpleNamespace(clock=self.clock, offload=Offload())
        parts: Any = SimpleNamespace(machines=[machine])
        broker: Any = SimpleNamespace(
            partitions=replicas,
            exists=lambda name: name.topic != "deleted",
            store=SimpleNamespace(directories=[each.directory for each in replicas.values()]),
        )
        remote: Any = self.remote
        self._source = LagSource(world, NODE, parts, broker, remote, Reads(world))
        self.pauses = 0

    def scrape(self) -> Page:
        class CountedTurn(Turn):
            async def pause(turn) -> None:  # noqa: N805
                self.pauses += 1

        async def collect() -> bytes:
            samples = Samples(per_partition=True)
            turn: Any = CountedTurn(self.clock)
            await self._source(samples, turn)
            return await page(samples, turn)

        return parsed(asyncio.run(collect()).decode())


def names(count: int, topic: str = "topic") -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(count)]


def known(page: Page) -> int:
    """Return how many partitions have a lag in seconds."""
    return sum(name == "penstock_group_partition_lag_seconds" for name, _labels in page)


def test_lag_by_topic_and_partition() -> None:
    first, second, remote = *names(2), TopicPartition("remote", 0)
    offsets = {first: 3, second: 10, remote: 4, TopicPartition("deleted", 0): 1}
    unanswered = {TopicPartition("unanswered", 0): 1}
    replicas = {first: Replica(Log(NOW_MS - 20_000)), second: Replica(Log(0))}
    found = Lags({"a": offsets, "b": unanswered, "c": {}}, replicas).scrape()
    assert value(found, "penstock_group_lag", group="a", topic="topic") == 7
    assert value(found, "penstock_group_lag_seconds", group="a", topic="topic") == 20.0
    assert value(found, "penstock_group_partition_lag_seconds", group="a", partition="1") == 0
    assert value(found, "penstock_group_lag", group="a", topic="remote") == 6
    assert value(found, "penstock_group_lag_seconds", group="a", topic="remote") == 60.0
    assert value(found, "penstock_group_lag_max", group="a") == 7
    assert value(found, "penstock_group_lag_unknown_partitions", group="a") == 0
    assert value(found, "penstock_group_lag_unknown_partitions", group="b") == 1
    assert not [key for key in found if ("topic", "deleted") in key[1] or ("group", "c") in key[1]]


@pytest.mark.parametrize(
    "change",
    [
        lambda replica: setattr(replica, "state", None),
        lambda replica: setattr(replica.directory, "failure", "broken"),
        lambda replica: setattr(replica, "state", SimpleNamespace(leader=2, isr=(2,))),
    ],
)
def test_a_replica_that_is_not_in_sync_is_not_believed(change: Callable[[Replica], Any]) -> None:
    (name,) = names(1)
    replica = Replica(Log(0), high_watermark=5)
    change(replica)
    lags = Lags({"a": {name: 4}}, {name: replica})
    assert value(lags.scrape(), "penstock_group_lag", group="a") == 6
    assert lags.remote.refreshed == {name: [4]}


def test_records_that_one_scrape_did_not_read_are_read_by_the_next() -> None:
    stopped = names(2 * limits.SCRAPED_COLD_RECORDS + 100)
    replicas = {name: Replica(Log(1_000, cold=True)) for name in stopped}
    lags = Lags({"a": dict.fromkeys(stopped, 7)}, replicas)
    assert [known(lags.scrape()) for _ in range(4)] == [200, 400, 500, 500]
    assert [replica.log.reads for replica in replicas.values()] == [1] * 500
    found = lags.scrape()
    assert value(found, "penstock_group_lag_seconds", group="a") == 3_600.0


def test_records_that_cannot_be_read_do_not_keep_the_others_from_being_read() -> None:
    stopped = names(3 * limits.SCRAPED_COLD_RECORDS)
    damaged = set(stopped[: limits.SCRAPED_COLD_RECORDS])
    replicas = {name: Replica(Log(1_000, cold=True, damaged=name in damaged)) for name in stopped}
    lags = Lags({"a": dict.fromkeys(stopped, 7)}, replicas)
    for _ in range(6):
        found = lags.scrape()
    assert known(found) == 2 * limits.SCRAPED_COLD_RECORDS


def test_a_record_that_could_not_be_read_is_read_when_it_can() -> None:
    (name,) = names(1)
    log = Log(1_000, cold=True, damaged=True)
    lags = Lags({"a": {name: 7}}, {name: Replica(log)})
    assert known(lags.scrape()) == 0
    log.damaged = False
    assert known(lags.scrape()) == 1


def test_a_record_without_a_timestamp_is_read_once_and_has_no_age() -> None:
    (name,) = names(1)
    log = Log(-1, cold=True)
    lags = Lags({"a": {name: 7}}, {name: Replica(log)})
    assert known(lags.scrape()) == 0
    log.cold = True
    assert known(lags.scrape()) == 0
    assert log.reads == 1


def test_the_age_is_that_of_the_first_record_that_retention_left() -> None:
    (name,) = names(1)
    replica = Replica(Log(1_000))
    lags = Lags({"a": {name: 2}}, {name: replica})
    assert value(lags.scrape(), "penstock_group_lag_seconds", group="a") == 3_600.0
    replica.log.start_offset, replica.log.timestamp = 5, 3_591_000
    assert value(lags.scrape(), "penstock_group_lag_seconds", group="a") == 10.0


def test_a_group_that_has_read_all_records_before_a_marker_has_no_lag_in_seconds() -> None:
    """It commits the offset after each record, as commitSync(offset + 1) in Java does."""
    (name,) = names(1)
    replica = Replica(Log(1_000), high_watermark=8)
    replica.log.markers = (7,)
    lags = Lags({"a": {name: 7}}, {name: replica})
    for _ in range(2):
        found = lags.scrape()
        assert value(found, "penstock_group_lag", group="a") == 1
        assert value(found, "penstock_group_lag_seconds", group="a") == 0
    assert replica.log.looked_at == [7], "the marker is remembered"
    # The next transaction: its first record is at offset 8.
    replica.high_watermark, replica.log.timestamp = 10, NOW_MS - 20_000
    assert value(lags.scrape(), "penstock_group_lag_seconds", group="a") == 20.0
    assert replica.log.looked_at == [7, 8]


def test_a_scrape_skips_some_of_many_markers_and_the_next_goes_on() -> None:
    (name,) = names(1)
    replica = Replica(Log(1_000), high_watermark=100)
    replica.log.markers = range(99)
    lags = Lags({"a": {name: 1}}, {name: replica})
    scrapes = 0
    while known(lags.scrape()) == 0:
        scrapes += 1
        assert len(replica.log.looked_at) == scrapes * limits.SCRAPED_MARKERS
    assert replica.log.looked_at == list(range(1, 100))


@pytest.mark.parametrize(("is_remote", "walks"), [(False, 3), (True, 3)])
def test_a_group_with_many_partitions_is_looked_at_in_pieces(is_remote: bool, walks: int) -> None:
    """Every walk over the partitions pauses."""
    count = 1_000
    some = names(count)
    replicas = {} if is_remote else {name: Replica(Log(1_000)) for name in some}
    lags = Lags({"a": dict.fromkeys(some, 1)}, replicas)
    found = lags.scrape()
    assert value(found, "penstock_group_lag", group="a") == 9 * count
    assert lags.pauses >= walks * count / limits.SCRAPED_PARTITIONS_PER_STEP


class LookedUp(dict[TopicPartition, Replica]):
    """Counts look-ups of replicas by their names."""

    count = 0

    def get(self, name: TopicPartition, default: Any = None) -> Any:
        self.count += 1
        return super().get(name, default)


def test_replicas_are_looked_up_once_while_nothing_changes() -> None:
    some = names(300)
    replicas = LookedUp({name: Replica(Log(1_000)) for name in some[:200]})
    lags = Lags({"a": dict.fromkeys(some, 10)}, replicas)
    for _ in range(3):
        assert value(lags.scrape(), "penstock_group_lag", group="a") == 0
        assert len(lags.remote.refreshed) == 100
    assert replicas.count == 300
    lags.committed["a"][some[0]] = Committed(4, -1, "", 0)
    assert value(lags.scrape(), "penstock_group_lag", group="a") == 6
    assert replicas.count == 300, "a new offset needs no look-up"


def test_replicas_are_forgotten_if_no_scrape_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of deleted topics would stay in memory."""
    monkeypatch.setattr(positions_module, "SCRAPE_KEPT_S", 0.01)
    (name,) = names(1)
    partitions = {name: Replica(Log(1_000))}
    store = SimpleNamespace(directories=[])
    replicas: Any = SimpleNamespace(partitions=partitions, store=store)

    async def scrape_and_wait() -> None:
        positions = Positions(NODE, replicas)
        positions.begin()
        await positions.of_group("a", [name], Turn(cast(Any, Clock())))
        positions.end()
        deleted = weakref.ref(partitions.pop(name))
        assert deleted() is not None
        async with asyncio.timeout(10):
            while deleted() is not None:
                await asyncio.sleep(0.01)

    asyncio.run(scrape_and_wait())


def commit_another(lags: Lags) -> None:
    lags.committed["a"][TopicPartition("topic", 9)] = Committed(9, -1, "", 0)


def fall_out_of_sync(lags: Lags) -> None:
    lags.replicas[TopicPartition("topic", 0)].state = SimpleNamespace(leader=2, isr=(2,))


def fail_directory(lags: Lags) -> None:
    lags.replicas[TopicPartition("topic", 0)].directory.failure = "broken"


def replace_replica(lags: Lags) -> None:
    """The topic was deleted and created again."""
    cast(dict[Any, Any], lags.replicas)[TopicPartition("topic", 0)] = Replica(Log(0), 100)


@pytest.mark.parametrize(
    ("change", "lag"),
    [
        (commit_another, 10 + 1),
        (fall_out_of_sync, 10 - 5),  # its leader says that it ends at 10
        (fail_directory, 10 - 5),
        (replace_replica, 10 + 85),
    ],
)
def test_what_changes_between_scrapes_is_looked_up_again(
    change: Callable[[Lags], None], lag: int
) -> None:
    name = TopicPartition("topic", 0)
    lags = Lags({"a": {name: 5}}, {name: Replica(Log(1_000), 15)})
    for _ in range(2):
        assert value(lags.scrape(), "penstock_group_lag", group="a") == 10
    change(lags)
    for _ in range(2):
        assert value(lags.scrape(), "penstock_group_lag", group="a") == lag


def test_a_replica_that_comes_into_sync_is_believed() -> None:
    (name,) = names(1)
    replica = Replica(Log(1_000), high_watermark=15)
    replica.state = SimpleNamespace(leader=2, isr=(2,))
    lags = Lags({"a": {name: 5}}, {name: replica})
    assert value(lags.scrape(), "penstock_group_lag", group="a") == 5
    replica.state = SimpleNamespace(leader=2, isr=(NODE, 2))
    assert value(lags.scrape(), "penstock_group_lag", group="a") == 10


@pytest.mark.parametrize(("caught_up", "seconds"), [(0, None), (1, 0.0)])
def test_a_topic_has_a_lag_in_seconds_if_that_of_a_partition_is_known(
    caught_up: int, seconds: float | None
) -> None:
    first, second = names(2)
    replicas = {name: Replica(Log(-1)) for name in (first, second)}
    lags = Lags({"a": {first: 9 + caught_up, second: 9}}, replicas)
    found = lags.scrape()
    assert value(found, "penstock_group_lag", group="a") == 2 - caught_up
    known = [each for key, each in found.items() if key[0] == "penstock_group_lag_seconds"]
    assert known == ([] if seconds is None else [seconds])
