"""Metadata responses are built from topics that are encoded once, and in slices; they wait only
while a leader is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.handlers import encoded_topics, load
from penstock.handlers.context import ConnectionHandle, Exclusive, RequestContext
from penstock.handlers.encoded_topics import EncodedTopics
from penstock.handlers.topic_view import INTERNAL_TOPICS, live_brokers
from penstock.limits import METADATA_SLICE_PARTITIONS, METADATA_SLICE_S
from penstock.metadata.image import TopicImage
from penstock.protocol import codec
from penstock.protocol.codec import decode, encode
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.world import Clock
from tests.handlers.fake_node import FakeNode, answer, call, run

METADATA = 3
ALL = MetadataRequest(topics=None)
Topic = MetadataResponse.Topic


def add_broker(node: FakeNode, broker_id: int, *, fenced: bool) -> None:
    """Add a broker that is fenced or not, with a partition of every topic on it."""
    broker = replace(node.image.brokers[1], id=broker_id, fenced=fenced)
    node.image = replace(node.image, brokers={**node.image.brokers, broker_id: broker})


def with_leader(node: FakeNode, name: str, leader: int) -> None:
    topic = node.image.topics[name]
    partitions = {
        index: replace(state, leader=leader, replicas=(1, leader), isr=(leader,))
        for index, state in topic.partitions.items()
    }
    changed = TopicImage(topic.name, topic.id, partitions)
    node.image = replace(node.image, topics={**node.image.topics, name: changed})


class CountedPartitions:
    """Counts the partitions that are encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Any = None) -> None:
        self.count = 0
        encode_partition = encoded_topics._partition

        def counted(*args: Any) -> bytes:
            self.count += 1
            if work is not None:
                work()
            return encode_partition(*args)

        monkeypatch.setattr(encoded_topics, "_partition", counted)

    def take(self) -> int:
        count, self.count = self.count, 0
        return count


@pytest.mark.parametrize("version", range(14))
def test_responses_are_encoded_as_the_codec_encodes_them(version: int) -> None:
    async def main(node: FakeNode) -> None:
        node.create("a", 3)
        node.create("__consumer_offsets", 2)
        add_broker(node, 2, fenced=True)
        with_leader(node, "a", 2)
        request = MetadataRequest(topics=() if version == 0 else None)
        response = call(node, METADATA, version, request)
        first = cast("list[bytes]", encode(response, version))
        live = live_brokers(node.parts)
        expected = MetadataResponse(
            brokers=response.brokers,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            topics=tuple(
                Topic(
                    name=topic.name,
                    topic_id=topic.id,
                    is_internal=topic.name in INTERNAL_TOPICS,
                    partitions=tuple(
                        Topic.Partition(
                            error_code=0 if state.leader in live else 5,
                            partition_index=index,
                            leader_id=state.leader,
                            leader_epoch=state.leader_epoch,
                            replica_nodes=state.replicas,
                            isr_nodes=state.isr,
                            offline_replicas=tuple(
                                replica for replica in state.replicas if replica not in live
                            ),
                        )
                        for index, state in topic.partitions.items()
                    ),
                )
                for topic in node.image.topics.values()
            ),
        )
        assert first == encode(expected, version)
        again = call(node, METADATA, version, request)
        assert cast("list[bytes]", encode(again, version)) == first

    run(main)


def test_a_topic_is_encoded_once_until_it_or_the_live_brokers_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(node: FakeNode) -> None:
        encoded = CountedPartitions(monkeypatch)
        node.create("a", 10)
        node.create("b", 7)
        await answer(node, METADATA, 12, ALL)
        assert encoded.take() == 17
        named = MetadataRequest(topics=(MetadataRequest.Topic(name="a"),))
        for request in (ALL, named, ALL):
            await answer(node, METADATA, 12, request)
        assert encoded.take() == 0
        await answer(node, METADATA, 9, ALL)
        assert encoded.take() == 17, "another version"
        node.create("c", 1)
        assert len((await answer(node, METADATA, 12, ALL)).topics) == 3
        assert encoded.take() == 1, "a new topic"
        add_broker(node, 2, fenced=True)
        with_leader(node, "b", 2)
        before = await answer(node, METADATA, 12, ALL)
        assert encoded.take() == 7, "a changed topic"
        add_broker(node, 2, fenced=False)
        after = await answer(node, METADATA, 12, ALL)
        assert encoded.take() == 18, "other live brokers"
        assert before.topics[1].partitions[0].error_code == 5
        assert after.topics[1].partitions[0].error_code == 0

    run(main)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: FakeNode) -> None:
        for number in range(20):
            node.create(f"topic-{number}", 10)
        cache = node.parts.encoded_topics
        for version in range(1, 14):
            assert len((await answer(node, METADATA, version, ALL)).topics) == 20
            assert sum(cached.size for cached in cache._forms.values()) <= 10_000

    monkeypatch.setattr(encoded_topics, "MAX_CACHED_METADATA_BYTES", 10_000)
    run(main)


class WorkClock:
    """A clock that only work advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.now_s

    def work(self) -> None:
        self.now_s += METADATA_SLICE_S / 50


@pytest.mark.parametrize("topics", [1, 100])
def test_many_partitions_are_encoded_over_several_turns(
    monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    async def main(node: FakeNode) -> None:
        clock = WorkClock()
        encoded = CountedPartitions(monkeypatch, clock.work)
        node.parts.encoded_topics = EncodedTopics(cast(Clock, clock))
        for number in range(topics):
            node.create(f"topic-{number}", 1_000 // topics)
        turns: list[int] = []
        response = call(node, METADATA, 12, ALL)
        assert isinstance(response, Exclusive)
        others = [asyncio.ensure_future(answer(node, METADATA, 12, ALL)) for _ in range(50)]
        task = asyncio.ensure_future(response.response)
        turns.append(encoded.take())
        while not task.done():
            await asyncio.sleep(0)
            turns.append(encoded.take())
        results = [await task, *(await asyncio.gather(*others))]
        decoded = decode(MetadataResponse, 12, cast(bytes, encode(results[0], 12)[0]))
        assert sum(len(topic.partitions) for topic in decoded.topics) == 1_000
        assert all(result.topics == decoded.topics for result in results[1:])
        assert 1_000 <= sum(turns) < 2 * 1_000 + 50 * 100, "not once for each request"
        # Each request builds its first slice when it arrives.
        assert max(turns[52:], default=0) <= 50 + METADATA_SLICE_PARTITIONS

    run(main)


def test_many_unknown_names_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: FakeNode) -> None:
        clock = WorkClock()
        encode_struct = codec.encode_struct

        def counted(*args: Any) -> bytes:
            clock.work()
            return encode_struct(*args)

        monkeypatch.setattr(encoded_topics, "encode_struct", counted)
        node.parts.encoded_topics = EncodedTopics(cast(Clock, clock))
        names = tuple(MetadataRequest.Topic(name=f"unknown-{number}") for number in range(5_000))
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        response = call(node, METADATA, 12, request)
        assert isinstance(response, Exclusive)
        task = asyncio.ensure_future(response.response)
        while not task.done():
            before = clock.now_s
            await asyncio.sleep(0)
            assert clock.now_s - before <= METADATA_SLICE_S * 1.1
        decoded = decode(MetadataResponse, 12, cast(bytes, encode(await task, 12)[0]))
        assert len(decoded.topics) == 5_000

    run(main)


def test_a_small_request_does_not_wait_for_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: FakeNode) -> None:
        clock = WorkClock()
        CountedPartitions(monkeypatch, clock.work)
        node.parts.encoded_topics = EncodedTopics(cast(Clock, clock))
        node.create("large", 1_000)
        node.create("small")
        large = call(node, METADATA, 12, ALL)
        assert isinstance(large, Exclusive)
        task = asyncio.ensure_future(large.response)
        await asyncio.sleep(0)
        named = MetadataRequest(topics=(MetadataRequest.Topic(name="small"),))
        assert isinstance(call(node, METADATA, 12, named), MetadataResponse)
        assert not task.done()
        await task

    run(main)


def test_responses_that_wait_describe_the_metadata_of_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them share what is encoded for the new live brokers."""

    async def main(node: FakeNode) -> None:
        clock = WorkClock()
        encoded = CountedPartitions(monkeypatch, clock.work)
        node.parts.encoded_topics = EncodedTopics(cast(Clock, clock))
        node.create("a", 1_000)
        add_broker(node, 2, fenced=True)
        tasks = [asyncio.ensure_future(answer(node, METADATA, 12, ALL)) for _ in range(10)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        encoded.take()
        add_broker(node, 2, fenced=False)
        with_leader(node, "a", 2)
        tasks += [asyncio.ensure_future(answer(node, METADATA, 12, ALL)) for _ in range(10)]
        first, *others = await asyncio.gather(*tasks)
        # The one that was being built, the first slices of the new ones, and one for all.
        assert encoded.take() <= 2 * 1_000 + 10 * 100
        assert first.topics[0].partitions[0].leader_id == 1
        for response in others:
            assert {broker.node_id for broker in response.brokers} == {1, 2}
            assert response.topics[0].partitions[0].leader_id == 2

    run(main)


def ask(node: FakeNode, opened: float, received: float) -> Any:
    """Ask for a topic on a connection of some age."""
    context = RequestContext(
        METADATA,
        12,
        7,
        "test",
        "PLAINTEXT",
        "10.0.0.1",
        9092,
        "10.0.0.2:5000",
        received,
        ConnectionHandle(opened),
    )
    request = MetadataRequest(topics=(MetadataRequest.Topic(name="a"),))
    return load(METADATA)(node.parts, request, context)


@pytest.mark.parametrize("age_s", [0.0, 10.0])
def test_a_response_waits_only_while_a_leader_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, age_s: float
) -> None:
    """It waited 20 ms on every connection that was not new, and so did all responses behind it."""

    async def main(node: FakeNode) -> None:
        node.create("a")
        add_broker(node, 2, fenced=False)
        with_leader(node, "a", 2)
        start = node.elapsed()
        response = ask(node, 0.0, age_s)
        response = await response if isinstance(response, Exclusive) else response
        assert node.elapsed() == start
        gone = {2}
        monkeypatch.setattr(node.metadata, "_is_disconnected", gone.__contains__)
        waiting = asyncio.ensure_future(ask(node, 0.0, age_s).response)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        with_leader(node, "a", 1)
        response = await waiting
        assert node.elapsed() < start + 0.2
        decoded = decode(MetadataResponse, 12, cast(bytes, encode(response, 12)[0]))
        assert decoded.topics[0].partitions[0].leader_id == 1

    run(main)


def test_a_leader_whose_loss_is_noticed_a_moment_later_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that loses its leader asks another broker at once, perhaps before the event loop of
    that broker has reported the loss."""

    async def main(node: FakeNode) -> None:
        node.create("a")
        add_broker(node, 2, fenced=False)
        with_leader(node, "a", 2)
        gone: set[int] = set()
        monkeypatch.setattr(node.metadata, "_is_disconnected", gone.__contains__)
        waiting = asyncio.ensure_future(ask(node, 0.0, 10.0).response)
        asyncio.get_running_loop().call_soon(gone.add, 2)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        with_leader(node, "a", 1)
        await waiting

    run(main)
