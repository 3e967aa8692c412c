"""Requests between brokers and controllers stay within the bounds of their receiver, whatever the
number of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from penstock import limits
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.metadata.image import BrokerImage, PartitionState
from penstock.node.broker.controllers import ControllerChannel
from penstock.node.broker.directories import DirectoryReports
from penstock.node.fetch.reader import FollowerReads
from penstock.node.partition.isr_changes import IsrChanges
from penstock.node.partition.isr_log import IsrLog
from penstock.node.partition.leader import LeaderRole
from penstock.node.partition.partition import Partition
from penstock.node.replication import follower_session
from penstock.node.replication.follower_session import FollowedPartition, FollowerSession
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from penstock.protocol.messages.fetch import FetchRequest
from penstock.replica.leader import IsrMember, IsrProposal
from penstock.world.sim import Simulation
from tests.log.making import batch
from tests.node.replicas import Cluster, run

T = TypeVar("T")

TOPIC_ID = UUID(int=4711)
MANY = limits.MAX_REQUEST_OBJECTS + 1


def received(message: type[T], request: object, version: int) -> T:
    """Return the request as its receiver decodes it. ProtocolError if it has too many objects."""
    return decode(message, version, encode_bytes(request, version))


def spawn_in(tasks: list[asyncio.Task[None]]) -> Any:
    def spawn(work: Coroutine[Any, Any, None]) -> object:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    return spawn


def partition(index: int) -> Partition:
    return cast(
        Partition,
        SimpleNamespace(
            topic_id=TOPIC_ID,
            topic_partition=TopicPartition("t", index),
            leader_epoch=1,
            log_end_offset=0,
            log_start_offset=0,
            last_epoch=0,
            directory=SimpleNamespace(id=UUID(int=900)),
            review=lambda: None,
        ),
    )


@pytest.mark.parametrize("session_id", [7, 0])
def test_a_follower_lists_its_partitions_in_requests_that_the_leader_accepts(
    session_id: int,
) -> None:
    session = FollowerSession(1, 500, 1, 1_000, 1_000)
    session.begin(5)
    for index in range(MANY):
        followed = FollowedPartition(partition(index))
        session.followed[followed.key] = followed
        session.change(followed)
    listed: set[int] = set()
    for _ in range(1 + MANY // limits.MAX_PARTITIONS_PER_FETCH):
        request = received(FetchRequest, session.request(), 17)
        listed |= {entry.partition for topic in request.topics for entry in topic.partitions}
        session.received(session_id)
    assert len(listed) == MANY, "the partitions take turns"
    assert session.has_changes == (session_id == 0), "without a session they are listed again"

    for key in list(session.followed):
        del session.followed[key]
        session.forget(key)
    forgotten = 0
    while session.has_changes:
        request = received(FetchRequest, session.request(), 17)
        forgotten += sum(len(topic.partitions) for topic in request.forgotten_topics_data)
    assert forgotten == MANY


def test_isr_changes_are_sent_in_requests_that_the_controller_accepts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They take several requests, of which the first two fail, and one log line for the broker that
    left."""
    count, isr = MANY // 4, (1, 2, 3)
    proposal = IsrProposal(tuple(IsrMember(broker, 7) for broker in isr), 1, 1)
    decided: set[int] = set()

    class Role:
        def __init__(self, index: int) -> None:
            self.partition = partition(index)
            self.leader = SimpleNamespace(
                isr=(*isr, 4),
                replicas=(*isr, 4),
                min_insync=3,
                followers={4: SimpleNamespace(end_offset=90)},
                end_offset=100,
                waits_since=lambda _replica: 0.0,
            )

        def is_proposing(self, _proposal: IsrProposal) -> bool:
            return self.partition.topic_partition.partition not in decided

        def isr_decided(self, _proposal: IsrProposal, _isr: object, _epoch: int) -> None:
            decided.add(self.partition.topic_partition.partition)

    failures = 2

    async def call(request: object, response: type[T], *, timeout_s: float) -> T:  # noqa: ARG001
        nonlocal failures
        await asyncio.sleep(0.01)
        assert response is AlterPartitionResponse
        proposals = received(AlterPartitionRequest, request, 3)
        if failures:
            failures -= 1
            return cast(T, AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        topics = tuple(
            AlterPartitionResponse.Topic(
                topic_id=topic.topic_id,
                partitions=tuple(
                    AlterPartitionResponse.Topic.Partition(
                        partition_index=entry.partition_index, leader_epoch=1, isr=isr
                    )
                    for entry in topic.partitions
                ),
            )
            for topic in proposals.topics
        )
        return cast(T, AlterPartitionResponse(topics=topics))

    simulation = Simulation(1)

    async def main() -> None:
        clock = simulation.node("1").world.clock
        brokers = {4: cast(BrokerImage, SimpleNamespace(id=4, fenced=False))}
        tasks: list[asyncio.Task[None]] = []
        log = IsrLog(1, clock, lambda: brokers, {4: clock.monotonic() - 7})
        changes = IsrChanges(1, call, lambda: 7, spawn_in(tasks), log)
        for index in range(count):
            changes.propose(cast(LeaderRole, Role(index)), proposal)
        await asyncio.gather(*tasks)
        assert len(decided) == count

    simulation.run(main())
    lines = [
        each.getMessage() for each in caplog.records if "left the in-sync" in each.getMessage()
    ]
    assert lines == [
        f"broker 4 left the in-sync replicas of t-2000, t-2001, t-2002 and {count - 3:,} more: "
        f"{count:,} of them are at min.insync.replicas; if one more replica fails, writes "
        "with acks=all are refused; broker 4 has not fetched from broker 1 for 7 s"
    ]


def test_replica_directories_are_reported_in_requests_that_the_controller_accepts() -> None:
    reported: set[int] = set()

    class Channel:
        async def call(self, request: object, response: type[T], *, timeout_s: float) -> T:  # noqa: ARG002
            await asyncio.sleep(0.01)
            assert response is AssignReplicasToDirsResponse
            accepted = received(AssignReplicasToDirsRequest, request, 0)
            indexes = {
                entry.partition_index
                for directory in accepted.directories
                for topic in directory.topics
                for entry in topic.partitions
            }
            assert len(indexes) <= 2_250, "Kafka's bound"
            if not reported & indexes and len(reported) == 2_250:
                reported.add(-1)
                return cast(T, AssignReplicasToDirsResponse(error_code=41))
            reported.update(indexes)
            return cast(T, AssignReplicasToDirsResponse())

    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        reports = DirectoryReports(
            1, cast(ControllerChannel, Channel()), lambda: 7, spawn_in(tasks)
        )
        state = PartitionState(replicas=(1,), isr=(1,), leader=1, directories=(UUID(int=3),))
        for index in range(MANY):
            reports.check(partition(index), TOPIC_ID, state)
        await asyncio.gather(*tasks)
        assert reported == {-1, *range(MANY)}, "one request was refused, and sent again"

    Simulation(1).run(main())


def test_followers_replicate_more_partitions_than_one_request_or_response_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_REQUEST_OBJECTS", 12)
    monkeypatch.setattr(follower_session, "MAX_PARTITIONS_PER_FETCH", 4)
    monkeypatch.setattr(FollowerReads, "max_partitions", 3)

    async def main(cluster: Cluster) -> None:
        for _round in range(3):
            for index in range(30):
                cluster.partition(1, index).append(batch("a"), acks_all=True)
            end = _round + 1
            await cluster.until(
                lambda: all(
                    cluster.ends(index) == [(end, end)] * 3  # noqa: B023
                    for index in range(30)
                ),
                within_s=3.0,
            )
        for broker in (2, 3):
            fetcher = cluster.brokers[broker].replication._fetchers[1]
            assert fetcher._session.id, "the partitions share a session"
            assert fetcher._failures == 0

    run(main, partitions=30)
