"""Incremental fetch sessions: what responses omit, what is refused, and that idle partitions cost
nothing."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from typing import Any

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import fetch as fetch_handler
from penstock.limits import FETCH_SESSION_IDLE_SECONDS
from penstock.node.fetch import delayed, reader
from penstock.node.fetch import state as fetch_state
from penstock.node.fetch.sessions import FetchSessions
from penstock.node.fetch.state import FetchState
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.world.sim import SimRng
from tests.handlers.fake_node import FakeNode, ReadResult, answer, records, run

Topic = FetchRequest.Topic
BATCH = records()
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def part(index: int, offset: int = 0) -> Topic.Partition:
    return Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=10_000)


class Fetcher:
    """A client's side of a session."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.session_id = 0
        self.epoch = 0

    async def fetch(
        self, *partitions: Topic.Partition, forget: tuple[int, ...] = (), **fields: Any
    ) -> dict[int, Any]:
        topics = (Topic(topic="t", partitions=partitions),) if partitions else ()
        forgotten = (FetchRequest.ForgottenTopic(topic="t", partitions=forget),) if forget else ()
        requested = FetchRequest(
            **({"min_bytes": 1, "max_wait_ms": 0} | fields),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        response: FetchResponse = await answer(self.node, 1, 12, requested)
        assert response.error_code == ErrorCode.NONE, response
        self.session_id = response.session_id
        self.epoch += 1
        return {
            result.partition_index: result
            for topic in response.responses
            for result in topic.partitions
        }


def test_the_first_response_has_all_partitions_and_the_next_only_changes() -> None:
    async def main(node: FakeNode) -> None:
        first, second, _third = node.create("t", 3)
        fetcher = Fetcher(node)
        assert set(await fetcher.fetch(part(0), part(1), part(2))) == {0, 1, 2}
        assert fetcher.session_id != 0
        assert await fetcher.fetch() == {}
        second.append(BATCH)
        assert {index: result.records for index, result in (await fetcher.fetch()).items()} == {
            1: BATCH
        }
        assert set(await fetcher.fetch()) == {1}, "the consumer has not fetched past it"
        assert await fetcher.fetch(part(1, offset=1)) == {}
        first.log_start_offset = 0
        first.tell()
        assert await fetcher.fetch() == {}, "notified, but nothing changed"

    run(main)


def test_a_new_high_watermark_or_log_start_is_returned_without_records() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.first_unstable = 0
        fetcher = Fetcher(node)
        await fetcher.fetch(part(0), isolation_level=1)
        partition.append(BATCH)
        (result,) = (await fetcher.fetch(isolation_level=1)).values()
        assert (result.high_watermark, result.records) == (1, b"")
        assert await fetcher.fetch(isolation_level=1) == {}
        partition.first_unstable = None
        partition.delete_records(1)
        (result,) = (await fetcher.fetch(part(0, offset=1), isolation_level=1)).values()
        assert result.log_start_offset == 1

    run(main)


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses of more than two partitions take several turns of the event loop."""
    for module in (delayed, reader, fetch_handler):
        monkeypatch.setattr(module, "ANSWERED_PARTITIONS_A_TURN", 2)
    monkeypatch.setattr(fetch_state, "UNWATCHED_PARTITIONS_A_TURN", 2)
    for each in (delayed, reader):
        monkeypatch.setattr(each, "FETCH_PARTITIONS_A_TURN", 5)


@pytest.mark.usefixtures("sliced")
def test_a_change_while_a_large_response_is_encoded_is_in_the_next_one() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 20)
        fetcher = Fetcher(node)
        answering = asyncio.ensure_future(fetcher.fetch(*map(part, range(20))))
        for _ in range(4 + 3):  # all are read, and some are encoded
            await asyncio.sleep(0)
        assert not answering.done()
        partitions[0].append(BATCH)
        partitions[19].append(BATCH)
        first = await answering
        assert len(first) == 20
        assert first[0].records == b""
        assert set(await fetcher.fetch()) == {0, 19}
        assert await fetcher.fetch(part(0, offset=1), part(19, offset=1)) == {}
        for partition in partitions:
            partition.append(BATCH)
        assert set(await fetcher.fetch()) == set(range(20))

    run(main)


@pytest.mark.usefixtures("sliced")
def test_a_large_response_that_is_cancelled_is_returned_by_the_next_request() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 20)
        for partition in partitions:
            partition.append(BATCH)
        fetcher = Fetcher(node)
        await fetcher.fetch(*map(part, range(20)))
        answering = asyncio.ensure_future(fetcher.fetch())
        for _ in range(4 + 3):
            await asyncio.sleep(0)
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        fetcher.epoch += 1
        assert set(await fetcher.fetch()) == set(range(20))
        await fetcher.fetch(forget=tuple(range(20)))
        await asyncio.sleep(1)
        assert [len(partition.watchers) for partition in partitions] == [0] * 20

    run(main)


@pytest.mark.usefixtures("sliced")
def test_another_request_completes_a_large_response_immediately() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 20)
        for partition in partitions:
            partition.append(BATCH)
        fetcher = Fetcher(node)
        await fetcher.fetch(*map(part, range(20)))
        answering = asyncio.ensure_future(fetcher.fetch())
        for _ in range(4 + 3):
            await asyncio.sleep(0)
        assert not answering.done()
        fetcher.epoch += 1
        next_one = asyncio.ensure_future(fetcher.fetch())
        assert set(await answering) == set(range(20))
        assert set(await next_one) == set(range(20))

    run(main)


@pytest.mark.usefixtures("sliced")
def test_a_large_fetch_without_a_session_leaves_no_watcher() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 20)
        fetcher = Fetcher(node)
        fetcher.epoch = -1
        assert len(await fetcher.fetch(*map(part, range(20)))) == 20
        await asyncio.sleep(1)
        assert [len(partition.watchers) for partition in partitions] == [0] * 20

    run(main)


def test_idle_partitions_are_not_read() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 50)
        fetcher = Fetcher(node)
        await fetcher.fetch(*map(part, range(50)))
        reads = [partition.reads for partition in partitions]
        partitions[7].append(BATCH)
        await fetcher.fetch(max_wait_ms=100)
        await fetcher.fetch(part(7, offset=1), max_wait_ms=100)
        assert [
            index for index, partition in enumerate(partitions) if partition.reads != reads[index]
        ] == [7]

    run(main)


def test_any_partition_wakes_a_session() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 5)
        fetcher = Fetcher(node)
        await fetcher.fetch(*map(part, range(5)))
        waiting = asyncio.ensure_future(fetcher.fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        partitions[3].append(BATCH)
        assert set(await waiting) == {3}
        assert node.elapsed() == pytest.approx(1, abs=0.1)

    run(main)


def test_partitions_are_added_and_forgotten_and_served_in_turn() -> None:
    async def main(node: FakeNode) -> None:
        partitions = node.create("t", 3)
        for partition in partitions:
            for _ in range(5):
                partition.append(BATCH)
        fetcher = Fetcher(node)
        await fetcher.fetch(part(0), part(1), max_bytes=len(BATCH))
        served = [
            next(
                i
                for i, result in (await fetcher.fetch(max_bytes=len(BATCH))).items()
                if result.records
            )
            for _ in range(4)
        ]
        assert served == [1, 0, 1, 0], "no partition starves"
        assert set(await fetcher.fetch(part(2), forget=(0, 1))) == {2}
        assert len(partitions[0].watchers) == 0
        assert await fetcher.fetch(forget=(2,)) == {}
        assert fetcher.session_id == 0, "a session without partitions is closed"

    run(main)


def test_an_error_is_repeated_until_it_ends() -> None:
    async def main(node: FakeNode) -> None:
        fetcher = Fetcher(node)
        assert (await fetcher.fetch(part(0)))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await fetcher.fetch())[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.create("t")
        assert (await fetcher.fetch())[0].error_code == ErrorCode.NONE
        assert await fetcher.fetch() == {}

    run(main)


def test_records_of_a_cancelled_response_are_returned_again() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        fetcher = Fetcher(node)
        await fetcher.fetch(part(0))
        waiting = asyncio.ensure_future(fetcher.fetch(max_wait_ms=10_000, min_bytes=10_000))
        await asyncio.sleep(0.1)
        partition.append(BATCH)
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        fetcher.epoch += 1
        assert (await fetcher.fetch())[0].records == BATCH

    run(main)


@pytest.mark.parametrize(
    ("session_id", "epoch", "version", "code"),
    [
        (1, 0, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 0, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_match_its_session_is_refused(
    session_id: int, epoch: int, version: int, code: ErrorCode
) -> None:
    """Each value differs from the valid one."""

    async def main(node: FakeNode) -> None:
        node.create("t")
        fetcher = Fetcher(node)
        await fetcher.fetch(part(0))
        requested = FetchRequest(
            session_id=fetcher.session_id ^ session_id, session_epoch=1 + epoch
        )
        response = await answer(node, 1, version, requested)
        assert (response.error_code, response.session_id, response.responses) == (code, 0, ())

    run(main)


def test_a_final_request_closes_its_session_and_an_initial_one_replaces_it() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        fetcher = Fetcher(node)
        await fetcher.fetch(part(0))
        assert len(partition.watchers) == 1
        old, fetcher.epoch = fetcher.session_id, 0
        await fetcher.fetch(part(0))
        assert fetcher.session_id not in (0, old)
        assert len(partition.watchers) == 1
        fetcher.epoch = -1
        assert set(await fetcher.fetch(part(0))) == {0}
        assert fetcher.session_id == 0
        assert partition.watchers == {}

    run(main)


def test_sessions_keep_no_node_alive() -> None:
    async def main(node: FakeNode) -> weakref.ref[FakeNode]:
        node.create("t")
        await Fetcher(node).fetch(part(0))
        return weakref.ref(node)

    gone = run(main)
    gc.collect()
    assert gone() is None


def state(partitions: int = 1) -> FetchState:
    state = FetchState(uses_topic_ids=False)
    for index in range(partitions):
        state.request(("t", index), part(index))
    return state


def sessions(**bounds: int) -> FetchSessions:
    return FetchSessions(SimRng(random.Random(5)), **bounds)


def test_a_full_cache_evicts_the_least_recently_used_idle_session() -> None:
    cache = sessions(slots=2)
    first, second = cache.open(state(), 0), cache.open(state(), 1)
    assert first is not None
    assert second is not None
    assert cache.open(state(), FETCH_SESSION_IDLE_SECONDS) is None
    cache.resume(first.id, 1, False, 2)
    assert cache.open(state(), FETCH_SESSION_IDLE_SECONDS + 1.5) is not None
    assert len(cache) == 2
    with pytest.raises(KafkaError) as refused:
        cache.resume(second.id, 1, False, 3)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.resume(first.id, 2, False, 3)


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    cache = sessions(max_partitions=10)
    session = cache.open(state(6), 0)
    assert session is not None
    assert cache.open(state(5), 0) is None
    assert cache.open(state(4), 0) is not None
    session.state.request(("t", 99), part(99))
    with pytest.raises(KafkaError) as refused:
        cache.resized(session)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.open(state(6), 0) is not None, "the closed session does not count"


def follower(replica_id: int, partitions: int = 1) -> FetchState:
    state = FetchState(uses_topic_ids=False, replica_id=replica_id)
    for index in range(partitions):
        state.request(("t", index), part(index))
    return state


def test_consumers_do_not_take_the_room_of_followers() -> None:
    cache = sessions(slots=1, max_partitions=10)
    assert cache.open(state(10), 0) is not None
    first = cache.open(follower(2, 50), 0)
    assert first is not None
    first.state.request(("t", 99), part(99))
    cache.resized(first)
    assert cache.open(follower(3), 0) is not None
    assert len(cache) == 3


def test_a_follower_has_one_session_and_followers_that_fetch_no_more_are_forgotten() -> None:
    cache = sessions()
    for _ in range(5):
        assert cache.open(follower(2), 0) is not None
    assert len(cache) == 1
    now = FETCH_SESSION_IDLE_SECONDS + 1.0
    last = cache.open(follower(3), now)
    assert last is not None
    assert (len(cache), set(cache._followers)) == (1, {3})
    cache.close(last.id)
    assert (len(cache), cache._followers) == (0, {})


def test_epochs_wrap_around_to_one() -> None:
    cache = sessions()
    session = cache.open(state(), 0)
    assert session is not None
    session.epoch = 2**31 - 1
    cache.resume(session.id, 2**31 - 1, False, 0)
    assert session.epoch == 1


def test_a_session_that_knows_the_watermark_is_still_sent_to_the_preferred_replica() -> None:
    """KIP-392 and KIP-227: a redirection is news, even if nothing else changed."""

    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.append(BATCH)
        partition.append(BATCH)
        preferred = [-1]
        partition.preferred_replica = lambda _rack, _offset: preferred[0]  # type: ignore[attr-defined]
        partition.look = lambda: ReadResult(None, 2, 2, 0, [])  # type: ignore[attr-defined]
        fetcher = Fetcher(node)
        (result,) = (await fetcher.fetch(part(0), rack_id="r", max_bytes=len(BATCH))).values()
        assert (result.records, result.preferred_read_replica) == (BATCH, -1)
        # The follower in the consumer's rack comes back.
        preferred[0] = 7
        responses = await fetcher.fetch(part(0, offset=1), rack_id="r", max_wait_ms=500)
        assert [result.preferred_read_replica for result in responses.values()] == [7]

    run(main, replica_selector_class=RACK_AWARE)
