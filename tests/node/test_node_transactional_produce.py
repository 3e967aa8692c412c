"""Transactional Produce requests over connections to real brokers, in all versions. The transaction
coordinator is the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.client.connection import Connection, open_connection
from penstock.config.transaction_settings import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.node.metadata import MetadataView
from penstock.node.shards.marker_writer import MarkerWriter
from penstock.node.shards.verification import Codes, TxnVerifier
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.records.record import read_records
from tests.log.making import batch, sequenced
from tests.node.replicas import TOPIC, TOPIC_ID, Cluster
from tests.node.replicas import run as run_cluster

TopicData = ProduceRequest.TopicData
PartitionResponse = ProduceResponse.Response.PartitionResponse
COORDINATOR_TOPIC = TopicImage(
    "__transaction_state",
    UUID(int=77),
    {0: PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=1)},
)
# Without versions that change nothing for transactions.
VERSIONS = (3, 9, 10, 11, 12, 13)


class Coordinator:
    """The coordinator on broker 1. It answers after a while, with an error if `code` is one."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[int], bool]] = []
        self.code = ErrorCode.NONE
        self.delay_s = 0.1
        self.exists = True

    def partition_of(self, _transactional_id: str) -> int | None:
        return 0 if self.exists else None

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> Codes | Awaitable[Codes]:
        indexes = [partition.partition for partition in partitions]
        self.asked.append((transactional_id, producer_id, producer_epoch, indexes, verify_only))
        assert transaction_version == 2
        return self._answer(partitions)

    async def _answer(self, partitions: Collection[TopicPartition]) -> Codes:
        await asyncio.sleep(self.delay_s)
        return dict.fromkeys(partitions, self.code)


class Client:
    def __init__(self, cluster: Cluster, connection: Connection, coordinator: Coordinator) -> None:
        self.cluster = cluster
        self.connection = connection
        self.coordinator = coordinator

    def send(self, request: ProduceRequest, version: int = 13) -> asyncio.Future[ProduceResponse]:
        return self.connection.send(request, ProduceResponse, max_version=version)

    async def produce(self, request: ProduceRequest, version: int = 13) -> list[PartitionResponse]:
        response = await self.send(request, version)
        return [each for topic in response.responses for each in topic.partition_responses]

    async def mark(self, *, commit: bool, producer: int = 1, epoch: int = 0, index: int = 0) -> int:
        marker = WriteTxnMarkersRequest.Marker
        request = WriteTxnMarkersRequest(
            markers=(
                marker(
                    producer_id=producer,
                    producer_epoch=epoch,
                    transaction_result=commit,
                    topics=(marker.Topic(name=TOPIC, partition_indexes=(index,)),),
                ),
            )
        )
        response = await self.connection.call(request, WriteTxnMarkersResponse)
        return response.markers[0].topics[0].partitions[0].error_code

    def values(self, index: int = 0) -> list[bytes]:
        log = self.cluster.partition(1, index).log
        found = log.read(0, 1_000_000, below=log.end_offset)
        records = [] if found is None else read_records(found.read())
        return [record.value or b"" for record in records if record.key is None]


def run(test: Callable[[Client], Coroutine[Any, Any, None]], partitions: int = 1) -> None:
    async def main(cluster: Cluster) -> None:
        broker, coordinator = cluster.brokers[1], Coordinator()
        metadata: Any = SimpleNamespace(
            image=MetadataImage(
                brokers=cluster.controller.brokers,
                topics={COORDINATOR_TOPIC.name: COORDINATOR_TOPIC},
            )
        )
        parts: Any = broker
        parts.verifier = TxnVerifier(
            broker.world, 1, cast(MetadataView, metadata), lambda: coordinator, broker.spawn
        )
        parts.marker_writer = MarkerWriter(broker.world, parts, parts, parts, 5.0)
        parts.broker_config = {TRANSACTION_PARTITION_VERIFICATION_ENABLE: True}
        connection = await open_connection(
            cluster.simulation.node("client").world,
            "b1",
            9092,
            client_id="client",
            connect_timeout_s=1,
            request_timeout_s=30,
        )
        await test(Client(cluster, connection, coordinator))
        connection.close()

    run_cluster(main, partitions=partitions)


def request(
    *batches: tuple[int, bytes], acks: int = -1, transactional_id: str | None = "t"
) -> ProduceRequest:
    data = TopicData(
        name=TOPIC,
        topic_id=TOPIC_ID,
        partition_data=tuple(
            TopicData.PartitionData(index=index, records=records) for index, records in batches
        ),
    )
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=(data,)
    )


def txn(value: str, sequence: int = 0, *, producer: int = 1, epoch: int = 0) -> bytes:
    return sequenced(producer, sequence, value, epoch=epoch, transactional=True)


def codes(responses: list[PartitionResponse]) -> list[int]:
    return [response.error_code for response in responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_from_version_12_on_partitions_are_added_and_before_they_are_verified(
    version: int,
) -> None:
    async def test(client: Client) -> None:
        assert codes(await client.produce(request((0, txn("a"))), version)) == [0]
        assert client.coordinator.asked == [("t", 1, 0, [0], version < 12)]
        assert codes(await client.produce(request((0, txn("b", 1))), version)) == [0]
        assert len(client.coordinator.asked) == 1, "the transaction is open"
        assert client.values() == [b"a", b"b"]

    run(test)


@pytest.mark.parametrize("acks", [1, -1])
def test_pipelined_requests_keep_their_order_while_the_verification_waits(acks: int) -> None:
    """Rule 5, with more in flight than a producer has."""

    async def test(client: Client) -> None:
        sent = [
            client.send(request((0, txn(str(number), number)), acks=acks)) for number in range(8)
        ]
        responses = [await future for future in sent]
        offsets = [
            response.responses[0].partition_responses[0].base_offset for response in responses
        ]
        assert offsets == list(range(8))
        assert client.values() == [str(number).encode() for number in range(8)]
        assert len(client.coordinator.asked) == 1

    run(test)


def test_acks_zero_appends_after_the_verification_and_errors_close_the_connection() -> None:
    async def test(client: Client) -> None:
        for number in range(3):
            client.connection.send_without_response(request((0, txn(str(number), number)), acks=0))
        await client.cluster.until(lambda: len(client.values()) == 3)
        assert client.values() == [b"0", b"1", b"2"]
        client.coordinator.code = ErrorCode.TRANSACTION_ABORTABLE
        client.connection.send_without_response(request((0, txn("x", producer=2)), acks=0))
        await client.cluster.until(lambda: client.connection.closed)

    run(test)


def test_the_partitions_of_a_request_are_verified_together() -> None:
    async def test(client: Client) -> None:
        batches = [(index, txn(str(index))) for index in range(20)]
        assert codes(await client.produce(request(*batches))) == [0] * 20
        assert client.coordinator.asked == [("t", 1, 0, list(range(20)), False)]

    run(test, partitions=20)


def test_partitions_of_an_open_transaction_and_plain_batches_are_not_verified() -> None:
    async def test(client: Client) -> None:
        await client.produce(request((0, txn("a"))))
        responses = await client.produce(
            request((0, txn("b", 1)), (1, txn("c")), (2, batch("plain")))
        )
        assert codes(responses) == [0, 0, 0]
        assert [asked[3] for asked in client.coordinator.asked] == [[0], [1]]

    run(test, partitions=3)


def test_each_partition_has_its_own_result() -> None:
    async def test(client: Client) -> None:
        await client.produce(request((0, txn("a"))))
        client.coordinator.code = ErrorCode.TRANSACTION_ABORTABLE
        responses = await client.produce(request((0, txn("b", 1)), (1, txn("c"))))
        assert codes(responses) == [0, ErrorCode.TRANSACTION_ABORTABLE]
        assert (client.values(0), client.values(1)) == ([b"a", b"b"], [])

    run(test, partitions=2)


RETRY = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, dict.fromkeys(VERSIONS, ErrorCode.INVALID_TXN_STATE)),
        (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            dict.fromkeys(VERSIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ),
        (ErrorCode.PRODUCER_FENCED, dict.fromkeys(VERSIONS, ErrorCode.INVALID_PRODUCER_EPOCH)),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            dict.fromkeys(VERSIONS, ErrorCode.TRANSACTION_ABORTABLE)
            | dict.fromkeys((3, 9, 10), ErrorCode.INVALID_TXN_STATE),
        ),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            dict.fromkeys(VERSIONS, RETRY)
            | dict.fromkeys((12, 13), ErrorCode.CONCURRENT_TRANSACTIONS),
        ),
        (ErrorCode.NOT_COORDINATOR, dict.fromkeys(VERSIONS, RETRY)),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, dict.fromkeys(VERSIONS, RETRY)),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, dict.fromkeys(VERSIONS, RETRY)),
    ],
)
def test_errors_are_those_that_clients_of_each_version_expect(
    code: ErrorCode, expected: dict[int, ErrorCode]
) -> None:
    async def test(client: Client) -> None:
        client.coordinator.code = code
        found = {}
        for version in VERSIONS:
            (response,) = await client.produce(request((0, txn("x", producer=version))), version)
            found[version] = ErrorCode(response.error_code)
            assert version < 8 or response.error_message
        assert found == expected
        assert client.values() == []

    run(test)


def test_without_a_coordinator_the_error_is_retriable() -> None:
    async def test(client: Client) -> None:
        client.coordinator.exists = False
        assert codes(await client.produce(request((0, txn("a"))))) == [RETRY]
        client.coordinator.exists = True
        assert codes(await client.produce(request((0, txn("a"))))) == [0]

    run(test)


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    async def test(client: Client) -> None:
        without = request((0, batch("plain")), (1, txn("a")), transactional_id=None)
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert codes(await client.produce(without)) == [code, code]
        assert (client.values(0), client.values(1)) == ([], []), "nothing of it is appended"
        plain = request((0, batch("plain")), (1, sequenced(2, 0, "idempotent")))
        assert codes(await client.produce(plain)) == [0, 0], "the id alone has no meaning"
        assert client.coordinator.asked == []

    run(test, partitions=2)


@pytest.mark.parametrize("other", [{"producer": 2}, {"epoch": 1}])
def test_a_request_has_the_transactional_batches_of_one_producer(other: dict[str, int]) -> None:
    async def test(client: Client) -> None:
        mixed = request((0, txn("a")), (1, txn("b", **other)))
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert codes(await client.produce(mixed)) == [code, code]
        assert client.coordinator.asked == []

    run(test, partitions=2)


def test_verification_can_be_switched_off_for_clients_that_add_partitions_themselves() -> None:
    async def test(client: Client) -> None:
        parts: Any = client.cluster.brokers[1]
        parts.broker_config = {TRANSACTION_PARTITION_VERIFICATION_ENABLE: False}
        assert codes(await client.produce(request((0, txn("a"))), 11)) == [0]
        assert client.coordinator.asked == []
        assert codes(await client.produce(request((0, txn("b", producer=2))), 12)) == [0]
        assert len(client.coordinator.asked) == 1, "the coordinator must add the partition"

    run(test)


def test_a_marker_during_the_verification_voids_it() -> None:
    """Of a client before transaction.version 2, whose marker has the epoch of the transaction."""

    async def test(client: Client) -> None:
        client.coordinator.delay_s = 1
        produced = client.send(request((0, txn("late"))), version=11)
        await asyncio.sleep(0.5)
        # A response waits for those before it, so the marker comes on its own connection.
        other = await open_connection(
            client.cluster.simulation.node("coordinator").world,
            "b1",
            9092,
            client_id="coordinator",
            connect_timeout_s=1,
            request_timeout_s=30,
        )
        assert await Client(client.cluster, other, client.coordinator).mark(commit=False) == 0
        other.close()
        response = (await produced).responses[0].partition_responses[0]
        assert response.error_code == ErrorCode.INVALID_TXN_STATE
        assert client.values() == []

    run(test)


def test_leadership_that_is_lost_during_the_verification_is_reported_at_once() -> None:
    async def test(client: Client) -> None:
        client.coordinator.delay_s = 20
        produced = client.send(request((0, txn("a"))))
        await asyncio.sleep(0.5)
        client.cluster.controller.change(leader=2)
        async with asyncio.timeout(1):
            response = (await produced).responses[0].partition_responses[0]
        assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert response.current_leader.leader_id == 2

    run(test)


def test_the_batches_of_a_stale_epoch_are_refused_without_asking() -> None:
    async def test(client: Client) -> None:
        await client.produce(request((0, txn("a", epoch=5))))
        assert await client.mark(commit=True, epoch=6) == 0
        responses = await client.produce(request((0, txn("b", 1, epoch=5))))
        assert codes(responses) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert len(client.coordinator.asked) == 1

    run(test)


def test_consumers_see_transactions_when_they_are_committed() -> None:
    async def test(client: Client) -> None:
        async def latest(isolation: int) -> int:
            topic = ListOffsetsRequest.Topic
            asked = ListOffsetsRequest(
                isolation_level=isolation,
                topics=(
                    topic(
                        name=TOPIC,
                        partitions=(topic.Partition(partition_index=0, timestamp=-1),),
                    ),
                ),
            )
            response = await client.connection.call(asked, ListOffsetsResponse)
            return response.topics[0].partitions[0].offset

        async def fetched(isolation: int) -> tuple[list[bytes], list[tuple[int, int]]]:
            topic = FetchRequest.Topic
            asked = FetchRequest(
                max_wait_ms=100,
                isolation_level=isolation,
                topics=(
                    topic(
                        topic=TOPIC,
                        topic_id=TOPIC_ID,
                        partitions=(topic.Partition(partition=0, partition_max_bytes=10_000),),
                    ),
                ),
            )
            response = await client.connection.call(asked, FetchResponse)
            partition = response.responses[0].partitions[0]
            records = read_records(bytes(cast(bytes, partition.records or b"")))
            aborted = [
                (each.producer_id, each.first_offset)
                for each in partition.aborted_transactions or ()
            ]
            return [record.value or b"" for record in records if record.key is None], aborted

        await client.produce(request((0, batch("before"))))
        await client.produce(request((0, txn("aborted"))))
        await client.produce(request((0, txn("open", producer=2))))
        assert [await latest(0), await latest(1)] == [3, 1]
        assert await client.mark(commit=False) == 0
        assert [await latest(0), await latest(1)] == [4, 2]
        assert (await fetched(0))[0] == [b"before", b"aborted", b"open"]
        assert await fetched(1) == ([b"before", b"aborted"], [(1, 1)])
        assert await client.mark(commit=True, producer=2) == 0
        assert [await latest(0), await latest(1)] == [5, 5]
        assert await fetched(1) == ([b"before", b"aborted", b"open"], [(1, 1)])

    run(test)


def test_describe_producers_shows_hanging_transactions() -> None:
    async def test(client: Client) -> None:
        async def describe(*partitions: int, name: str = TOPIC) -> list[Any]:
            topic = DescribeProducersRequest.Topic(name=name, partition_indexes=partitions)
            response = await client.connection.call(
                DescribeProducersRequest(topics=(topic,)), DescribeProducersResponse
            )
            return [partition for each in response.topics for partition in each.partitions]

        await client.produce(request((0, batch("plain"))))
        await client.produce(request((0, txn("a", epoch=3))))
        await client.produce(request((0, sequenced(8, 5, "idempotent"))))
        (partition,) = await describe(0)
        found = [
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in partition.active_producers
        ]
        assert found == [(1, 3, 0, -1, 1), (8, 0, 5, -1, -1)]
        assert await client.mark(commit=False, epoch=3) == 0
        (partition,) = await describe(0)
        first = partition.active_producers[0]
        assert (first.current_txn_start_offset, first.coordinator_epoch) == (-1, 0)
        (refused,) = await describe(0, name="not/a/topic")
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(test)
