"""Markers of ended transactions: to the leaders of their partitions, in few requests, until all are
written. Broker 1 coordinates; 2 and 3 are scripted brokers behind simulated connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.coordinator.transactions.table import WriteMarkers
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.limits import MAX_MARKERS_PER_REQUEST
from penstock.metadata.image import (
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.node.metadata import MetadataView
from penstock.node.shards.txn_markers import TxnMarkers
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.world.sim import Simulation
from tests.client.scripted_broker import LOSE_RESPONSE, ScriptedBroker

TOPIC, TOPIC_ID = "orders", UUID(int=7)
Marker = WriteTxnMarkersResponse.Marker
REQUEST_TIMEOUT_S = 5.0


class Broker(ScriptedBroker):
    """`codes` are those of its next requests, for all partitions; LOSE_RESPONSE closes the
    connection instead."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.served[27] = (1, 2)
        self.codes: deque[ErrorCode | str] = deque()
        self.received: list[WriteTxnMarkersRequest] = []

    def handle(self, version: int, request: object) -> object:
        assert isinstance(request, WriteTxnMarkersRequest)
        assert version == 2
        self.received.append(request)
        code = self.codes.popleft() if self.codes else ErrorCode.NONE
        return code if isinstance(code, str) else response_to(request, code)

    @property
    def partitions_received(self) -> list[list[tuple[int, ...]]]:
        """Return the partitions of each marker of each request."""
        return [
            [topic.partition_indexes for marker in request.markers for topic in marker.topics]
            for request in self.received
        ]


def response_to(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            Marker(
                producer_id=marker.producer_id,
                topics=tuple(
                    Marker.Topic(
                        name=topic.name,
                        partitions=tuple(
                            Marker.Topic.Partition(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )


class Coordinator:
    """Broker 1. Partition n of the topic is led by `leaders[n]`."""

    def __init__(self, simulation: Simulation, leaders: list[int]) -> None:
        self.world = simulation.node("a").world
        self.brokers = {2: Broker("b"), 3: Broker("c")}
        self.local: list[WriteTxnMarkersRequest] = []
        self.written: list[WriteMarkers] = []
        self.epoch = 5
        self.producer_ids = count(1000)
        self.tasks: list[asyncio.Task[None]] = []
        self.metadata = SimpleNamespace(
            image=MetadataImage(
                topics={TOPIC: TopicImage(TOPIC, TOPIC_ID, dict(enumerate(map(led_by, leaders))))},
                brokers={
                    broker_id: BrokerImage(broker_id, 1, UUID(int=broker_id), fenced=False)
                    for broker_id in (1, 2, 3)
                },
            ),
            broker_address=lambda broker_id: (self.brokers[broker_id].host, 9092),
        )
        self.markers = TxnMarkers(
            self.world,
            1,
            cast(MetadataView, self.metadata),
            self.spawn,
            request_timeout_s=REQUEST_TIMEOUT_S,
            write_local=self.write_local,
            is_current=lambda effect: effect.coordinator_epoch == self.epoch,
            written=self.on_written,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def write_local(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.local.append(request)
        return response_to(request, ErrorCode.NONE)

    def on_written(self, effects: Collection[WriteMarkers]) -> None:
        self.written.extend(effects)

    def end(self, transactional_id: str, *partitions: int) -> WriteMarkers:
        effect = WriteMarkers(
            transactional_id,
            next(self.producer_ids),
            4,
            True,
            self.epoch,
            tuple(TopicPartition(TOPIC, index) for index in partitions),
            2,
        )
        self.markers.perform(effect)
        return effect

    def lead(self, leaders: dict[int, int]) -> None:
        """Change leaders; -1 is none."""
        before = self.metadata.image.topics[TOPIC]
        changed = {index: led_by(leader) for index, leader in leaders.items()}
        after = replace(before, partitions={**before.partitions, **changed})
        self.apply(
            replace(self.metadata.image, topics={TOPIC: after}),
            MetadataDelta(topics={TOPIC_ID: (before, after)}),
        )

    def fence(self, broker_id: int) -> None:
        fenced = replace(self.metadata.image.brokers[broker_id], fenced=True)
        brokers = {**self.metadata.image.brokers, broker_id: fenced}
        self.apply(
            replace(self.metadata.image, brokers=brokers),
            MetadataDelta(brokers=frozenset({broker_id})),
        )

    def restart(self, broker_id: int) -> None:
        """Register the next process of a broker. Its fencing is in the same delta."""
        before = self.metadata.image.brokers[broker_id]
        brokers = {
            **self.metadata.image.brokers,
            broker_id: replace(before, epoch=before.epoch + 1),
        }
        self.apply(
            replace(self.metadata.image, brokers=brokers),
            MetadataDelta(brokers=frozenset({broker_id})),
        )

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.metadata.image = image
        self.markers.apply(image, delta)


def led_by(leader: int) -> PartitionState:
    return PartitionState(replicas=(1, 2, 3), isr=(1, 2, 3), leader=leader)


def run(
    test: Callable[[Coordinator], Awaitable[None]], leaders: list[int], listening: int = 3
) -> None:
    async def main() -> None:
        coordinator = Coordinator(simulation, leaders)
        for broker in list(coordinator.brokers.values())[: listening - 1]:
            node = simulation.node(broker.host)
            await node.run(listen(broker, node.world))
        await simulation.node("a").run(body(coordinator))

    async def listen(broker: Broker, world: Any) -> None:
        await broker.listen(world)

    async def body(coordinator: Coordinator) -> None:
        await test(coordinator)
        coordinator.markers.close()

    simulation = Simulation(seed=1)
    simulation.run(main())


def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    async def test(coordinator: Coordinator) -> None:
        effect = coordinator.end("t", 0, 1, 2, 3)
        assert not coordinator.written, "nothing is finished within the step that ends it"
        await asyncio.sleep(1)
        assert coordinator.written == [effect]
        assert coordinator.brokers[2].partitions_received == [[(1, 3)]]
        assert coordinator.brokers[3].partitions_received == [[(2,)]]
        (request,) = coordinator.local
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch) == (effect.producer_id, 4)
        assert (marker.coordinator_epoch, marker.transaction_version) == (5, 2)
        assert marker.transaction_result

    run(test, [1, 2, 3, 2])


def test_one_request_is_in_flight_and_the_next_takes_all_that_waits() -> None:
    async def test(coordinator: Coordinator) -> None:
        for number in range(3):
            coordinator.end(f"first-{number}", 0)
        await asyncio.sleep(0)
        for number in range(20):
            coordinator.end(f"next-{number}", 0)
        await asyncio.sleep(1)
        assert [len(request.markers) for request in coordinator.brokers[2].received] == [3, 20]
        assert coordinator.brokers[2].most_in_flight == 1
        assert len(coordinator.written) == 23

    run(test, [2])


def test_a_large_transaction_takes_several_requests() -> None:
    size = 3 * MAX_MARKERS_PER_REQUEST + 10

    async def test(coordinator: Coordinator) -> None:
        effect = coordinator.end("t", *range(size))
        await asyncio.sleep(5)
        assert coordinator.written == [effect]
        sizes = [len(marker) for (marker,) in coordinator.brokers[2].partitions_received]
        assert sum(sizes) == size
        assert max(sizes) == MAX_MARKERS_PER_REQUEST

    run(test, [2] * size)


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        LOSE_RESPONSE,
    ],
)
def test_failures_are_repeated_ever_more_slowly(failure: ErrorCode | str) -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].codes.extend([failure] * 12)
        effect = coordinator.end("t", 0)
        await asyncio.sleep(4)
        assert not coordinator.written
        assert 5 < len(coordinator.brokers[2].received) < 12
        await asyncio.sleep(8)
        assert coordinator.written == [effect]
        assert len(coordinator.brokers[2].received) == 13

    run(test, [2])


def test_the_new_leader_gets_the_marker_at_once() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].codes.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 7)
        effect = coordinator.end("t", 0)
        await asyncio.sleep(1.4)
        before = len(coordinator.brokers[2].received)
        coordinator.lead({0: 3})
        await asyncio.sleep(0.1)
        assert coordinator.written == [effect]
        assert len(coordinator.brokers[2].received) == before
        assert coordinator.brokers[3].partitions_received == [[(0,)]]

    run(test, [2])


def test_markers_wait_for_a_leader() -> None:
    async def test(coordinator: Coordinator) -> None:
        effect = coordinator.end("t", 0, 1)
        await asyncio.sleep(60)
        assert not coordinator.written
        coordinator.lead({0: 3})
        await asyncio.sleep(0.1)
        assert coordinator.written == [effect]

    run(test, [-1, 3])


def test_a_broker_that_does_not_answer_is_given_up_when_it_is_fenced() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].silent = True
        effect = coordinator.end("t", 0)
        await asyncio.sleep(3)
        coordinator.fence(2)
        coordinator.lead({0: 3})
        await asyncio.sleep(0.1)
        assert coordinator.written == [effect]
        assert coordinator.brokers[3].partitions_received == [[(0,)]]

    run(test, [2])


def test_markers_are_sent_again_after_the_request_timeout() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].silent = True
        effect = coordinator.end("t", 0)
        await asyncio.sleep(REQUEST_TIMEOUT_S - 0.5)
        coordinator.brokers[2].silent = False
        assert len(coordinator.brokers[2].requests) == 1
        await asyncio.sleep(1)
        assert coordinator.written == [effect]

    run(test, [2])


def test_a_broker_that_lost_power_and_is_back_gets_the_markers_again() -> None:
    """Its connection is half open, and the request would time out later."""

    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].silent = True
        effect = coordinator.end("t", 0)
        await asyncio.sleep(1)
        coordinator.brokers[2].silent = False
        coordinator.restart(2)
        await asyncio.sleep(0.1)
        assert coordinator.written == [effect]

    run(test, [2])


def test_a_broker_that_cannot_be_reached_delays_only_its_own_partitions() -> None:
    async def test(coordinator: Coordinator) -> None:
        stuck = coordinator.end("stuck", 0, 1)
        other = coordinator.end("other", 1)
        await asyncio.sleep(10)
        assert coordinator.written == [other]
        coordinator.lead({0: 2})
        await asyncio.sleep(5)
        assert coordinator.written == [other, stuck]

    run(test, [3, 2], listening=2)


def test_partitions_of_deleted_topics_need_no_marker() -> None:
    async def test(coordinator: Coordinator) -> None:
        effect = coordinator.end("t", 0, 7)
        await asyncio.sleep(1)
        assert coordinator.written == [effect]
        image = coordinator.metadata.image
        coordinator.brokers[2].codes.extend([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100)
        effect = coordinator.end("u", 0)
        await asyncio.sleep(1)
        deleted = MetadataDelta(topics={TOPIC_ID: (image.topics[TOPIC], None)})
        coordinator.apply(replace(image, topics={}), deleted)
        await asyncio.sleep(0.1)
        assert coordinator.written[-1] is effect

    run(test, [2])


def test_a_coordinator_that_was_replaced_sends_nothing_more() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].codes.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
        coordinator.end("t", 0)
        await asyncio.sleep(0.01)
        coordinator.epoch = 6
        await asyncio.sleep(60)
        assert len(coordinator.brokers[2].received) == 1
        assert coordinator.markers.began("t") is None
        effect = coordinator.end("t", 0)
        await asyncio.sleep(5)
        assert coordinator.written == [effect]

    run(test, [2])


def test_an_effect_that_is_derived_again_replaces_the_first() -> None:
    """The shard failed and was loaded again in the same epoch."""

    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].codes.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        coordinator.end("t", 0)
        again = coordinator.end("t", 0)
        await asyncio.sleep(5)
        assert [effect is again for effect in coordinator.written] == [True]

    run(test, [2])


def test_a_newer_coordinator_ends_the_attempts() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].codes.append(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        coordinator.end("t", 0)
        await asyncio.sleep(60)
        assert len(coordinator.brokers[2].received) == 1
        assert not coordinator.written

    run(test, [2])


def test_a_partition_with_a_newer_producer_epoch_needs_no_marker() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.brokers[2].codes.append(ErrorCode.INVALID_PRODUCER_EPOCH)
        effect = coordinator.end("t", 0)
        await asyncio.sleep(1)
        assert coordinator.written == [effect]

    run(test, [2])


def test_nothing_runs_while_no_transaction_ends() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.end("t", 0)
        await asyncio.sleep(1)
        assert all(task.done() for task in coordinator.tasks)
        assert coordinator.markers.began("t") is None

    run(test, [2])


def test_many_transactions_that_wait_for_a_leader_are_retried_in_pieces() -> None:
    async def test(coordinator: Coordinator) -> None:
        ended = [coordinator.end(f"t{index}", 0) for index in range(2_500)]
        coordinator.lead({0: 1})
        queue = coordinator.markers._destinations
        assert not queue, "nothing is done while the metadata is applied"
        await asyncio.sleep(0)
        assert len(queue[1].queue) == MAX_MARKERS_PER_REQUEST
        await asyncio.sleep(10)
        assert set(coordinator.written) == set(ended)

    run(test, [-1])
