"""The age of a record on another broker comes from the end offsets that were seen, and from the
timestamp of the record where they do not reach."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import limits
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import TopicPartition
from penstock.metrics.turn import Turn
from penstock.node.metrics.end_offsets import EndOffsets
from penstock.node.metrics.remote_offsets import RemoteOffsets
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.records.build import build_batch

NAME = TopicPartition("topic", 0)


def seen(*ends: tuple[int, int]) -> EndOffsets:
    """Return the end offsets of scrapes at these times in seconds."""
    found = EndOffsets()
    for at_s, end in ends:
        found.add(end, at_s * 1000)
    return found


@pytest.mark.parametrize(
    ("offset", "at_s"),
    [
        (20, None),  # before the first scrape
        (100, 40.0),  # the end at 40 s was still 100, and 200 at 50 s
        (150, 45.0),  # between the scrapes at 40 s and at 50 s
        (199, 49.9),
        (200, None),  # not appended yet
    ],
)
def test_the_time_is_interpolated_between_scrapes(offset: int, at_s: float | None) -> None:
    ends = seen((30, 100), (40, 100), (50, 200))
    assert ends.appended_ms(offset) == (None if at_s is None else at_s * 1000)
    assert ends.since_ms == 30_000


def test_a_log_that_became_shorter_is_another_log() -> None:
    ends = seen((10, 100), (20, 50), (30, 60))
    assert ends.appended_ms(50) == 20_000
    assert ends.appended_ms(49) is None
    assert ends.since_ms == 20_000


def test_what_no_group_needs_is_forgotten() -> None:
    ends = seen(*((number, number) for number in range(10, 30)))
    ends.forget_before(25)
    assert len(ends) == 5
    assert ends.appended_ms(25) == 25_000
    ends.forget_before(1_000)
    assert len(ends) == 1


@pytest.mark.parametrize("interval_s", [1, 2, 15, 60])
def test_ages_are_known_after_any_number_of_scrapes(interval_s: int) -> None:
    """Bursts of an unlike number of records, for six hours."""
    rng, ends, end, truth = Random(interval_s), EndOffsets(), 0, []
    for at_s in range(0, 6 * 3600, interval_s):
        ends.add(end, at_s * 1000)
        assert len(ends) <= limits.REMEMBERED_END_OFFSETS
        truth.append((end, at_s))
        end += 1 + (rng.randrange(100_000) if rng.random() < 0.02 else 0)
    now_s = truth[-1][1]
    for offset, at_s in truth[:-1]:
        appended_ms = ends.appended_ms(offset)
        assert appended_ms is not None
        age_s = now_s - at_s
        assert abs(now_s - appended_ms / 1000 - age_s) <= max(age_s / 3, interval_s)


def test_a_clock_that_jumps_does_no_harm() -> None:
    rng, ends = Random(1), EndOffsets()
    for end in range(1_000):
        ends.add(end, rng.randrange(10**12))
        assert len(ends) <= limits.REMEMBERED_END_OFFSETS
    assert ends.appended_ms(500) is not None


class Leaders:
    """Brokers that lead the partitions of `logs`, which have a start, an end and the age of their
    records in seconds. A broker in `errors` raises."""

    def __init__(self, logs: dict[TopicPartition, tuple[int, int, int]]) -> None:
        self.logs = logs
        self.now_ms = 10_000_000
        self.errors: dict[int, Exception] = {}
        self.fetched: list[TopicPartition] = []
        self.markers: Container[int] = ()
        self.listed: list[int] = []
        clock = SimpleNamespace(now_ms=lambda: self.now_ms, monotonic=lambda: 0.0)
        world: Any = SimpleNamespace(clock=clock)
        metadata: Any = SimpleNamespace(image=SimpleNamespace(topics=_Topics(logs)))
        self._clock: Any = clock
        self.remote = RemoteOffsets(world, 1, metadata)
        setattr(self.remote, "_connection", self._connection)  # noqa: B010
        self.pauses = 0

    def scrape(self, wanted: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, int]:
        class CountedTurn(Turn):
            async def pause(turn) -> None:  # noqa: N805
                self.pauses += 1

        return asyncio.run(self.remote.refresh(wanted, CountedTurn(self._clock)))

    async def _connection(self, leader: int) -> Any:
        async def call(request: Any, _response: Any, **_options: Any) -> Any:
            if leader in self.errors:
                raise self.errors[leader]
            if isinstance(request, FetchRequest):
                return self._fetch(request)
            return self._list(request)

        return SimpleNamespace(call=call)

    def _list(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        part, topics = ListOffsetsResponse.Topic, []
        self.listed.append(sum(len(topic.partitions) for topic in request.topics))
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                start, end, _age_s = self.logs[TopicPartition(topic.name, each.partition_index)]
                offset = end if each.timestamp == -1 else start
                partitions.append(
                    part.Partition(partition_index=each.partition_index, offset=offset)
                )
            topics.append(part(name=topic.name, partitions=tuple(partitions)))
        return ListOffsetsResponse(topics=tuple(topics))

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        name = TopicPartition(topic.topic, wanted.partition)
        self.fetched.append(name)
        start, end, age_s = self.logs[name]
        part = FetchResponse.Response.Partition
        if not start <= wanted.fetch_offset <= end:
            found = part(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            batch = build_batch(
                [(None, b"x", (), self.now_ms - age_s * 1000)],
                base_offset=wanted.fetch_offset,
                control=wanted.fetch_offset in self.markers,
            )
            found = part(records=memoryview(batch))
        response = FetchResponse.Response(topic=topic.topic, partitions=(found,))
        return FetchResponse(responses=(response,))


class _Topics(dict[str, Any]):
    """Every partition is led by broker 2 + its number modulo 2."""

    def __init__(self, logs: Mapping[TopicPartition, object]) -> None:
        super().__init__()
        for topic, index in logs:
            found = self.setdefault(topic, SimpleNamespace(partitions={}))
            found.partitions[index] = SimpleNamespace(leader=2 + index % 2)


def many(count: int) -> dict[TopicPartition, tuple[int, int, int]]:
    return {TopicPartition("topic", index): (0, 100, 600) for index in range(count)}


def test_a_record_that_is_older_than_the_first_scrape_has_the_age_of_its_timestamp() -> None:
    """So that a coordinator that has just started, or taken over a group, knows it."""
    leaders = Leaders({NAME: (0, 100, 7200)})
    assert leaders.scrape({NAME: [5, 100]}) == {NAME: 100}
    assert leaders.remote.age_s(NAME, 5) == 7200.0
    leaders.now_ms += 60_000
    leaders.logs[NAME] = (0, 200, 7200)
    leaders.scrape({NAME: [5, 100]})
    assert leaders.remote.age_s(NAME, 5) == 7260.0
    assert leaders.fetched == [NAME], "the timestamp is remembered"
    assert leaders.remote.age_s(NAME, 100) == 60.0, "estimated"
    leaders.scrape({NAME: [150]})
    assert leaders.remote.age_s(NAME, 150) == 30.0
    assert leaders.fetched == [NAME]


def test_the_timestamps_of_a_log_that_became_shorter_are_read_again() -> None:
    leaders = Leaders({NAME: (0, 100, 7200)})
    leaders.scrape({NAME: [5]})
    leaders.logs[NAME] = (0, 20, 30)
    leaders.scrape({NAME: [5]})
    assert leaders.remote.age_s(NAME, 5) == 30.0


@pytest.mark.parametrize("interval_s", [1, 15])
def test_the_age_of_a_group_that_has_stopped_grows_with_time(interval_s: int) -> None:
    """The group has read all records, then it stops. The coordinator has seen that."""
    leaders = Leaders({NAME: (0, 100, 600)})
    start_ms = leaders.now_ms
    for at_s in range(0, 500 * interval_s, interval_s):
        leaders.now_ms = start_ms + at_s * 1000
        leaders.logs[NAME] = (0, 100 + 10 * at_s, 600)
        leaders.scrape({NAME: [100, 105]})
        if at_s:
            age_s = leaders.remote.age_s(NAME, 105)
            assert age_s is not None
            assert abs(age_s - at_s) <= 1
    assert leaders.fetched == [NAME] * 2, "once for each offset, to tell a marker from a record"


def test_a_group_without_a_lag_costs_no_fetch() -> None:
    leaders = Leaders({NAME: (0, 100, 600)})
    leaders.scrape({NAME: [100]})
    assert not leaders.fetched


@pytest.mark.parametrize("is_seen", [False, True], ids=["older", "estimated"])
def test_a_group_that_has_read_all_records_before_a_marker_has_no_age(is_seen: bool) -> None:
    leaders = Leaders({NAME: (0, 99, 600)})
    leaders.markers = (99,)
    if is_seen:
        leaders.scrape({NAME: [99]})
    leaders.logs[NAME] = (0, 100, 600)
    for _ in range(4):
        leaders.now_ms += 60_000
        leaders.scrape({NAME: [99]})
    assert leaders.remote.age_s(NAME, 99) == 0
    assert leaders.fetched == [NAME]
    # The next transaction.
    leaders.logs[NAME] = (0, 110, 600)
    leaders.scrape({NAME: [99]})
    leaders.now_ms += 10_000
    leaders.scrape({NAME: [99]})
    assert leaders.remote.age_s(NAME, 99) == 10.0


def test_a_scrape_skips_some_of_many_markers_and_the_next_goes_on() -> None:
    leaders = Leaders({NAME: (0, 100, 600)})
    leaders.markers = range(99)
    scrapes = 0
    while leaders.remote.age_s(NAME, 1) != 600.0:
        assert len(leaders.fetched) == scrapes * limits.SCRAPED_MARKERS
        leaders.scrape({NAME: [1]})
        scrapes += 1
    assert len(leaders.fetched) == 99


def test_retention_has_removed_the_record() -> None:
    leaders = Leaders({NAME: (50, 100, 600)})
    leaders.scrape({NAME: [5]})
    assert leaders.remote.age_s(NAME, 5) == 600.0


def test_timestamps_are_read_some_per_scrape() -> None:
    count = 2 * limits.SCRAPED_REMOTE_RECORDS + 10
    leaders = Leaders(many(count))
    wanted = {key: [5] for key in leaders.logs}
    for expected in (50, 100, 110, 110):
        leaders.scrape(wanted)
        ages = [leaders.remote.age_s(name, 5) for name in wanted]
        assert ages.count(600.0) == expected
        assert ages.count(0.0) == count - expected, "at least since the first scrape"
    assert len(leaders.fetched) == count


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "gone"),
        ConnectionResetError("reset"),
        ProtocolError("garbage"),
        TimeoutError(),
    ],
)
def test_a_leader_that_does_not_answer_does_not_keep_others_from_it(error: Exception) -> None:
    leaders = Leaders(many(20))
    leaders.errors[2] = error
    assert len(leaders.scrape({key: [5] for key in leaders.logs})) == 10
    assert leaders.remote.age_s(TopicPartition("topic", 1), 5) == 600.0
    assert leaders.remote.age_s(TopicPartition("topic", 0), 5) is None


def test_requests_have_a_bounded_number_of_partitions_and_walks_pause() -> None:
    leaders = Leaders(many(1_000))
    leaders.scrape({key: [100] for key in leaders.logs})
    assert sum(leaders.listed) == 1_000
    assert max(leaders.listed) <= limits.SCRAPED_REMOTE_PARTITIONS
    assert leaders.pauses >= 2 * 1_000 / limits.SCRAPED_PARTITIONS_PER_STEP + len(leaders.listed)


def test_partitions_that_are_not_wanted_are_forgotten() -> None:
    leaders = Leaders(many(2))
    leaders.scrape({key: [5] for key in leaders.logs})
    leaders.scrape({NAME: [5]})
    assert leaders.remote.age_s(TopicPartition("topic", 1), 5) is None
