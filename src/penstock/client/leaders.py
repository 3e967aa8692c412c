"""Asking the leaders of many partitions at once: each is asked for its own, and what failed in a
way that may pass is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.faults import ConnectionFailed
from penstock.errors import KafkaError
from penstock.ids import TopicPartition

T = TypeVar("T")
Outcomes = Mapping[TopicPartition, T | KafkaError]
Ask = Callable[[Connection, list[TopicPartition]], Awaitable[Outcomes[T]]]


async def ask_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition], ask: Ask[T]
) -> dict[TopicPartition, T]:
    """An answer for each partition; the first error that does not pass is raised."""
    answers: dict[TopicPartition, T] = {}

    async def attempt() -> None:
        missing = [one for one in partitions if one not in answers]
        await _ask_once(cluster, missing, ask, answers)

    await cluster.retry(attempt)
    return {one: answers[one] for one in partitions}


async def _ask_once(
    cluster: Cluster, missing: list[TopicPartition], ask: Ask[T], answers: dict[TopicPartition, T]
) -> None:
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in missing:
        _topic, info = await cluster.leader(partition)
        by_leader.setdefault(info.leader, []).append(partition)
    results = await asyncio.gather(
        *(_ask_one(cluster, leader, theirs, ask) for leader, theirs in by_leader.items())
    )
    failures: list[KafkaError] = []
    for outcomes in results:
        for partition, outcome in outcomes.items():
            if isinstance(outcome, KafkaError):
                failures.append(outcome)
                cluster.metadata.forget(partition.topic)
            else:
                answers[partition] = outcome
    if failures:
        raise min(failures, key=lambda one: one.code.retriable)


async def _ask_one(
    cluster: Cluster, leader: int, partitions: list[TopicPartition], ask: Ask[T]
) -> Outcomes[T]:
    try:
        return await ask(await cluster.broker(leader), partitions)
    except ConnectionFailed as error:
        return dict.fromkeys(partitions, error)


def by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped
