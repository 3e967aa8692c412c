"""A metadata change that concerns many partitions is applied in short steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.ids import TopicPartition
from penstock.limits import (
    CHANGED_PARTITIONS_PER_STEP,
    METADATA_STEPS_PER_TURN,
    REVIEWED_PARTITIONS_PER_STEP,
)
from penstock.metadata.image import (
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    TopicImage,
    delta_steps,
)
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.metadata_loader import MetadataLoader
from penstock.node.replication.replicas import Replicas
from tests.node.deltas import delta_between

TOPICS, PARTITIONS = 300, 4


class Looked(dict[int, PartitionState]):
    """Partitions that cannot be iterated."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all partitions of a topic are looked at")

    items = values = __iter__  # type: ignore[assignment]


class Compared(dict[int, PartitionState]):
    """Partitions that count how many were iterated."""

    count = 0

    def items(self) -> Any:
        for item in super().items():
            Compared.count += 1
            yield item


class CountedPartition:
    """A partition that only counts its changes and reviews."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self.directory = SimpleNamespace(failure=None)

    def become(self, _state: PartitionState) -> None:
        self._counts["changed"] += 1

    def review(self) -> None:
        self._counts["reviewed"] += 1

    def abandon(self, *, is_reassigned: bool) -> None:
        assert not is_reassigned


def image(leader: int) -> MetadataImage:
    state = PartitionState(replicas=(1, 2), isr=(leader,), leader=leader, leader_epoch=leader)
    topics = {
        f"t{number}": TopicImage(
            f"t{number}", UUID(int=number + 1_000), dict.fromkeys(range(PARTITIONS), state)
        )
        for number in range(TOPICS)
    }
    broker = BrokerImage(2, 5, UUID(int=500), fenced=leader == 1)
    names = {topic.id: name for name, topic in topics.items()}
    return MetadataImage(topics=topics, topic_names=names, brokers={2: broker}, offset=leader)


def replicas_of(before: MetadataImage, counts: dict[str, int]) -> Replicas:
    replicas = object.__new__(Replicas)
    parts: Any = replicas
    parts.opened = True
    parts._changed = 0
    parts._node_id = 1
    parts._metadata = SimpleNamespace(topic_config=lambda _name: None)
    parts._fetchers = SimpleNamespace(
        follow=lambda _partition: None, unfollow=lambda _partition: None
    )
    parts.store = SimpleNamespace(logs={}, damaged={})
    parts._env = SimpleNamespace(counts=SimpleNamespace(forget=lambda _topic: None))
    parts._reports = SimpleNamespace(check=lambda *_args: None)
    parts.partitions = {
        TopicPartition(name, index): CountedPartition(counts)
        for name, topic in before.topics.items()
        for index in topic.partitions
    }
    return replicas


def longest(steps: Iterator[None], counts: dict[str, int], name: str) -> int:
    """Return how many partitions the longest step changed or reviewed."""
    found = [0, *(counts[name] for _step in steps)]
    return max(after - before for before, after in pairwise([*found, counts[name]]))


def test_the_failure_of_a_broker_changes_and_reviews_few_partitions_per_step() -> None:
    before, after = image(leader=2), image(leader=1)
    delta: MetadataDelta = delta_between(before, after)
    counts = {"changed": 0, "reviewed": 0}
    steps = replicas_of(before, counts).apply(after, delta)
    assert longest(steps, counts, "changed") <= CHANGED_PARTITIONS_PER_STEP
    assert counts == {"changed": TOPICS * PARTITIONS, "reviewed": TOPICS * PARTITIONS}
    counts = {"changed": 0, "reviewed": 0}
    steps = replicas_of(before, counts).apply(after, delta)
    assert longest(steps, counts, "reviewed") <= REVIEWED_PARTITIONS_PER_STEP


@pytest.mark.parametrize("before", [MetadataImage.empty(), image(leader=2)], ids=["none", "other"])
def test_images_are_compared_in_bounded_steps(
    monkeypatch: pytest.MonkeyPatch, before: MetadataImage
) -> None:
    after = image(leader=1)
    expected = delta_between(before, after)
    assert len(expected.topics) == TOPICS
    assert set(expected.partitions) == set(expected.topics)
    monkeypatch.setattr("penstock.metadata.image.COMPARED_PARTITIONS_PER_STEP", 100)
    topics = {
        name: replace(topic, partitions=Compared(topic.partitions))
        for name, topic in after.topics.items()
    }
    Compared.count = 0
    steps = delta_steps(before, replace(after, topics=topics))
    looked = [0, *(Compared.count for _step in steps)]
    assert Compared.count == TOPICS * PARTITIONS
    assert max(new - old for old, new in pairwise([*looked, Compared.count])) <= 100
    assert len(looked) > TOPICS * 10 // 100, "a topic counts as ten partitions"
    assert delta_between(before, after) == expected


def test_snapshot_is_compared_with_the_image_that_was_published_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.metadata.image.COMPARED_PARTITIONS_PER_STEP", 100)
    published: list[tuple[int, int]] = []

    def publish(new: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
        published.append((new.offset, len(delta.topics)))
        yield

    async def main() -> None:
        loader = MetadataLoader(cast(MetadataLog, None), publish)
        snapshot, same = replace(image(leader=1), offset=9), replace(image(leader=1), offset=5)
        loading = asyncio.ensure_future(loader.load(snapshot))
        await asyncio.sleep(0)
        assert not loading.done()
        assert published == []
        loader._begin(same, delta_between(MetadataImage.empty(), same))
        await loading
        assert loader.image is snapshot
        assert loader.applied_offset == 9

    asyncio.run(main())
    assert published == [(5, TOPICS), (9, 0)]


def test_the_objects_of_many_changed_partitions_are_reported_for_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.node.replication.replicas.PARTITIONS_PER_FREEZE", 500)
    before, after = image(leader=2), image(leader=1)
    counts = {"changed": 0, "reviewed": 0}
    replicas = replicas_of(before, counts)
    reported: list[int] = []
    monkeypatch.setattr(replicas, "on_large_change", lambda: reported.append(counts["changed"]))
    for _step in replicas.apply(after, delta_between(before, after)):
        pass
    assert reported == [500, 1_000]


def test_a_change_of_one_partition_looks_at_no_other_partition_of_its_topic() -> None:
    before = image(leader=2)
    topic = before.topics["t7"]
    changed = replace(topic.partitions[2], isr=(1, 2))
    after = replace(
        before,
        topics={
            **before.topics,
            "t7": replace(topic, partitions=Looked({**topic.partitions, 2: changed})),
        },
        offset=9,
    )
    counts = {"changed": 0, "reviewed": 0}
    delta = MetadataDelta({topic.id: (topic, after.topics["t7"])}, partitions={topic.id: [2]})
    for _step in replicas_of(before, counts).apply(after, delta):
        pass
    assert counts["changed"] == 1


def test_a_starting_broker_follows_the_metadata_that_changes_between_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = image(leader=2)
    counts = {"changed": 0, "reviewed": 0}
    replicas = replicas_of(MetadataImage.empty(), counts)
    parts: Any = replicas
    parts.opened = False
    parts._metadata.image = first

    def create(_topic: TopicImage, name: TopicPartition, *_args: object) -> CountedPartition:
        created = parts.partitions[name] = CountedPartition(counts)
        return created

    monkeypatch.setattr(replicas, "_create", create)
    created_in_turn: list[int] = []

    async def change_metadata() -> None:
        """Delete the first topic, which has its partitions, and the last one, which has none."""
        created_in_turn.append(len(replicas.partitions))
        gone = {"t0", f"t{TOPICS - 1}"}
        topics = {name: topic for name, topic in first.topics.items() if name not in gone}
        names = {topic.id: name for name, topic in topics.items()}
        parts._metadata.image = replace(first, topics=topics, topic_names=names, offset=3)

    async def main() -> None:
        changing = asyncio.create_task(change_metadata())
        await replicas._create_partitions()
        await changing

    asyncio.run(main())
    assert created_in_turn == [METADATA_STEPS_PER_TURN]
    assert set(replicas.partitions) == {
        TopicPartition(name, index)
        for name, topic in parts._metadata.image.topics.items()
        for index in topic.partitions
    }


def test_partitions_of_other_brokers_are_compared_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.node.replication.replicas.COMPARED_PARTITIONS_PER_STEP", 100)
    state = PartitionState(replicas=(2, 3), isr=(2,), leader=2, leader_epoch=0)
    wide = TopicImage("wide", UUID(int=7_000), dict.fromkeys(range(1_000), state))
    after = MetadataImage(topics={"wide": wide}, topic_names={wide.id: "wide"}, offset=1)
    replicas = replicas_of(MetadataImage.empty(), {"changed": 0, "reviewed": 0})
    steps = replicas.apply(after, delta_between(MetadataImage.empty(), after))
    assert sum(1 for _step in steps) == 10
