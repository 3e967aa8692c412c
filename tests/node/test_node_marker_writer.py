"""MarkerWriter: markers in replicated partitions (rules 2 and 15), and in those of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MARKERS_A_TURN
from penstock.node.metadata import MetadataView
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.marker_writer import MarkerWriter
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.records.batch import batches
from tests.log.making import batch, sequenced
from tests.node.replicas import CONFIG, TOPIC, Broker, Cluster, run

Marker = WriteTxnMarkersRequest.Marker
TIMEOUT_S = 5.0


class GroupMarkers:
    """Records the markers for __consumer_offsets. `outcome` is raised by the call, or awaited."""

    def __init__(self) -> None:
        self.written: list[tuple[object, ...]] = []
        self.outcome: KafkaError | Awaitable[None] | None = None

    def write_marker(self, *args: object) -> Awaitable[None] | None:
        self.written.append(args)
        if isinstance(self.outcome, KafkaError):
            raise self.outcome
        return self.outcome


def writer_of(broker: Broker, groups: GroupMarkers | None = None) -> MarkerWriter:
    return MarkerWriter(
        broker.world,
        cast(MetadataView, broker),
        cast(Replicas, broker),
        groups or GroupMarkers(),
        TIMEOUT_S,
    )


def request(*markers: Marker) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=markers)


def marker(
    producer: int = 1,
    epoch: int = 0,
    *,
    commit: bool = True,
    partitions: tuple[int, ...] = (0,),
    coordinator_epoch: int = 0,
    version: int = 0,
    topic: str = TOPIC,
) -> Marker:
    return Marker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=(Marker.Topic(name=topic, partition_indexes=partitions),),
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, int], int]:
    return {
        (result.producer_id, partition.partition_index): partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }


def begin(partition: Partition, producer: int = 1, epoch: int = 0, sequence: int = 0) -> None:
    """Append the first batch of a transaction."""
    guard = partition.begin_verification(producer, epoch, sequence, adds=True)
    assert guard is not None
    assert partition.confirm_verification(guard)
    partition.append(
        sequenced(producer, sequence, "x", epoch=epoch, transactional=True), acks_all=True
    )


def test_a_marker_is_answered_when_it_is_committed() -> None:
    async def test(cluster: Cluster) -> None:
        leader = cluster.partition(1)
        begin(leader)
        writing = asyncio.ensure_future(writer_of(cluster.brokers[1]).write(request(marker())))
        await asyncio.sleep(0)
        assert (leader.log_end_offset, writing.done()) == (2, False)
        assert codes(await writing) == {(1, 0): 0}
        assert leader.high_watermark == 2
        assert leader.last_stable_offset == 2
        await cluster.until(lambda: cluster.ends() == [(2, 2)] * 3)
        assert [cluster.partition(number).last_stable_offset for number in (1, 2, 3)] == [2] * 3

    run(test)


def test_the_last_stable_offset_waits_for_the_replication_of_the_marker() -> None:
    async def test(cluster: Cluster) -> None:
        leader = cluster.partition(1)
        begin(leader)
        await cluster.until(lambda: leader.high_watermark == 1)
        assert leader.last_stable_offset == 0
        for number in (2, 3):
            await cluster.brokers[number].stop()
        writing = asyncio.ensure_future(writer_of(cluster.brokers[1]).write(request(marker())))
        await asyncio.sleep(1)
        assert (leader.log_end_offset, leader.last_stable_offset) == (2, 0)
        assert codes(await writing) == {(1, 0): ErrorCode.REQUEST_TIMED_OUT}
        for number in (2, 3):
            cluster.make(number)
            await cluster.brokers[number].start()
        await cluster.until(lambda: leader.last_stable_offset == 2)

    run(test)


def test_markers_of_many_producers_and_partitions_get_their_own_results() -> None:
    async def test(cluster: Cluster) -> None:
        for index in range(3):
            begin(cluster.partition(1, index), producer=index)
        response = await writer_of(cluster.brokers[1]).write(
            request(
                marker(0, partitions=(0, 1)),
                marker(1, epoch=5, partitions=(1,)),
                marker(2, commit=False, partitions=(2,)),
            )
        )
        assert codes(response) == {(0, 0): 0, (0, 1): 0, (1, 1): 0, (2, 2): 0}
        assert [result.producer_id for result in response.markers] == [0, 1, 2]
        ends = [cluster.partition(1, index).last_stable_offset for index in range(3)]
        assert ends == [2, 3, 2], "a producer that a partition does not know gets its marker too"
        assert cluster.partition(1, 2).log.aborted_transactions(0, 2) == [(2, 0, 1, 2)]

    run(test, partitions=3)


def test_fenced_producers_and_coordinators_write_nothing() -> None:
    """Rule 12."""

    async def test(cluster: Cluster) -> None:
        leader, writer = cluster.partition(1), writer_of(cluster.brokers[1])
        begin(leader, epoch=3)
        await writer.write(request(marker(epoch=3, coordinator_epoch=7)))
        begin(leader, epoch=4)
        end = leader.log_end_offset
        for stale, code in [
            (marker(epoch=3, coordinator_epoch=7), ErrorCode.INVALID_PRODUCER_EPOCH),
            (marker(epoch=4, coordinator_epoch=6), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
            (marker(epoch=4, coordinator_epoch=7, version=2), ErrorCode.INVALID_PRODUCER_EPOCH),
        ]:
            assert codes(await writer.write(request(stale))) == {(1, 0): code}
        assert leader.log_end_offset == end
        ended = marker(epoch=5, coordinator_epoch=7, version=2, commit=False)
        for _ in range(2):
            assert codes(await writer.write(request(ended))) == {(1, 0): 0}, "retries are harmless"
        assert leader.last_stable_offset == leader.log_end_offset == end + 2
        assert leader.log.aborted_transactions(0, end + 2) == [(1, 2, end, end + 1)]

    run(test)


def test_a_hanging_transaction_is_aborted_by_an_administrator() -> None:
    """kafka-transactions.sh abort sends the epochs that DescribeProducers returned, in v1."""

    async def test(cluster: Cluster) -> None:
        leader = cluster.partition(1)
        begin(leader, producer=9, epoch=2)
        await cluster.produce("after")
        ((producer_id, producer),) = leader.producers()
        assert (producer.txn_first_offset, producer.coordinator_epoch) == (0, -1)
        abort = marker(producer_id, producer.epoch, commit=False)
        assert codes(await writer_of(cluster.brokers[1]).write(request(abort))) == {(9, 0): 0}
        assert leader.last_stable_offset == 3
        result = leader.read(0, 10_000, committed_only=True)
        assert result.aborted == [(9, 0)]

    run(test)


def test_partitions_that_this_broker_does_not_lead_are_retriable() -> None:
    async def test(cluster: Cluster) -> None:
        writer = writer_of(cluster.brokers[2])
        response = await writer.write(request(marker(), marker(2, topic="nowhere")))
        assert codes(response) == {
            (1, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (2, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }

    run(test)


def test_too_few_replicas_in_sync_refuse_markers() -> None:
    """Rule 2."""

    async def test(cluster: Cluster) -> None:
        cluster.controller.change(isr=(1,))
        response = await writer_of(cluster.brokers[1]).write(request(marker()))
        assert codes(response) == {(1, 0): ErrorCode.NOT_ENOUGH_REPLICAS}
        assert cluster.partition(1).log_end_offset == 0

    run(test)


def test_an_open_transaction_is_ended_by_the_next_leader() -> None:
    """It knows the transaction from its log, and needs no verification for its batches."""

    async def test(cluster: Cluster) -> None:
        begin(cluster.partition(1), epoch=1)
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        cluster.controller.change(leader=2)
        leader = cluster.partition(2)
        assert leader.begin_verification(1, 1, 1, adds=True) is None
        leader.append(sequenced(1, 1, "y", epoch=1, transactional=True), acks_all=True)
        leader.append(batch("plain"), acks_all=True)
        assert leader.last_stable_offset == 0
        response = await writer_of(cluster.brokers[2]).write(
            request(marker(epoch=2, version=2, commit=False))
        )
        assert codes(response) == {(1, 0): 0}
        await cluster.until(lambda: cluster.ends() == [(4, 4)] * 3)
        for number in (1, 2, 3):
            follower = cluster.partition(number)
            assert follower.last_stable_offset == 4
            assert follower.log.aborted_transactions(0, 4) == [(1, 0, 3, 4)]

    run(test)


def test_many_markers_let_other_work_have_its_turn() -> None:
    async def test(cluster: Cluster) -> None:
        count = 3 * MARKERS_A_TURN
        markers = [marker(producer) for producer in range(count)]
        turns = 0

        async def other() -> None:
            nonlocal turns
            while cluster.partition(1).log_end_offset < count:
                turns += 1
                await asyncio.sleep(0)

        observer = asyncio.ensure_future(other())
        response = await writer_of(cluster.brokers[1]).write(request(*markers))
        assert set(codes(response).values()) == {0}
        await observer
        assert turns >= 2
        found = cluster.partition(1).log.read(0, 10**6, below=count)
        assert found is not None
        written = [header.producer_id for _position, header in batches(found.read())]
        assert written == list(range(len(written)))

    run(test, config=replace(CONFIG, segment_bytes=1_000_000))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (None, ErrorCode.NONE),
    ],
)
@pytest.mark.parametrize("is_later", [True, False])
def test_markers_of_offsets_go_through_the_group_coordinator(
    code: ErrorCode | None, expected: ErrorCode, is_later: bool
) -> None:
    async def test(cluster: Cluster) -> None:
        groups = GroupMarkers()
        error = None if code is None else KafkaError(code, "refused")
        groups.outcome = _later(error) if is_later else error
        parts: Any = SimpleNamespace(
            topic=lambda _name: None, partition=lambda _topic, _index: None
        )
        writer = MarkerWriter(cluster.brokers[1].world, parts, parts, groups, TIMEOUT_S)
        offsets = marker(
            7, 3, partitions=(13,), coordinator_epoch=4, version=2, topic="__consumer_offsets"
        )
        assert codes(await writer.write(request(offsets))) == {(7, 13): expected}
        assert groups.written == [(13, 7, 3, True, 4, 2)]

    run(test)


async def _later(error: KafkaError | None) -> None:
    await asyncio.sleep(0.1)
    if error is not None:
        raise error


def test_followers_serve_read_committed_consumers_no_more_than_the_leader() -> None:
    """Rule 8."""

    async def test(cluster: Cluster) -> None:
        await cluster.produce("before")
        begin(cluster.partition(1))
        await cluster.produce("after")
        await cluster.until(lambda: cluster.ends() == [(3, 3)] * 3)
        for number in (1, 2, 3):
            partition = cluster.partition(number)
            result = partition.read(0, 10_000, committed_only=True)
            assert (result.last_stable_offset, result.high_watermark) == (1, 3)
            assert result.range is not None
            assert [header.base_offset for _at, header in batches(result.range.read())] == [0]
            assert partition.read(2, 10_000, committed_only=True).range is None
        await writer_of(cluster.brokers[1]).write(request(marker(commit=False)))
        await cluster.until(lambda: cluster.ends() == [(4, 4)] * 3)
        for number in (1, 2, 3):
            result = cluster.partition(number).read(0, 10_000, committed_only=True)
            assert (result.last_stable_offset, result.aborted) == (4, [(1, 1)])

    run(test)


@pytest.mark.parametrize(("producer", "epoch"), [(-1, -1), (-1, 0), (-5, 0), (1, -1), (1, -5)])
@pytest.mark.parametrize("topic", [TOPIC, "__consumer_offsets"])
def test_a_marker_needs_a_producer(producer: int, epoch: int, topic: str) -> None:
    async def test(cluster: Cluster) -> None:
        groups = GroupMarkers()
        leader = cluster.partition(1)
        response = await writer_of(cluster.brokers[1], groups).write(
            request(marker(producer, epoch, topic=topic))
        )
        assert codes(response) == {(producer, 0): ErrorCode.INVALID_REQUEST}
        assert (leader.log_end_offset, groups.written) == (0, [])

    run(test)
