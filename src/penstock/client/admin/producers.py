"""Describe the producers of partitions, and abort a transaction in one partition (KIP-664).

Error messages are those of Kafka's admin client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import error_of
from penstock.client.routing import PartitionResults, by_topic, send_to_leaders
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# WriteTxnMarkers v2 carries the transaction version (KIP-1228). A marker of an administrator has
# the epoch of the open transaction, which v1 allows.
_WRITE_TXN_MARKERS_MAX_VERSION = 1


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer of a partition. `coordinator_epoch` and `transaction_start_offset` are None if
    no marker was written, and if no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """The open transaction of a partition; its text is Kafka's."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    def __str__(self) -> str:
        return (
            f"AbortTransactionSpec(topicPartition={self.partition}, "
            f"producerId={self.producer_id}, producerEpoch={self.producer_epoch}, "
            f"coordinatorEpoch={self.coordinator_epoch})"
        )


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """Return the active producers as the leader of each partition, or this broker, knows them."""
    if broker_id is None:
        return await send_to_leaders(cluster, partitions, _describe_producers)

    results = await _describe_producers(await cluster.broker(broker_id), list(partitions))
    producers: dict[TopicPartition, tuple[ProducerState, ...]] = {}
    for partition, result in results.items():
        if isinstance(result, KafkaError):
            raise KafkaError(
                result.code,
                f"Failed to describe active producers for partition {partition} on brokerId "
                f"{broker_id}",
            )
        producers[partition] = result
    return producers


async def _describe_producers(
    connection: Connection, partitions: list[TopicPartition]
) -> PartitionResults[tuple[ProducerState, ...]]:
    request = DescribeProducersRequest(
        topics=tuple(
            DescribeProducersRequest.Topic(name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in by_topic(partitions).items()
        )
    )
    response = await connection.call(request, DescribeProducersResponse)
    return {
        TopicPartition(topic.name, result.partition_index): tuple(
            map(_producer_state, result.active_producers)
        )
        if result.error_code == 0
        else error_of(
            result.error_code,
            result.error_message
            or f"cannot describe the producers of {topic.name}-{result.partition_index}",
        )
        for topic in response.topics
        for result in topic.partitions
    }


def _producer_state(
    producer: DescribeProducersResponse.Topic.Partition.ActiveProducer,
) -> ProducerState:
    return ProducerState(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        None if producer.coordinator_epoch < 0 else producer.coordinator_epoch,
        None if producer.current_txn_start_offset < 0 else producer.current_txn_start_offset,
    )


async def open_transaction_at(
    cluster: Cluster, partition: TopicPartition, start_offset: int
) -> AbortTransactionSpec | None:
    """Return the partition's open transaction that starts at this offset.

    Without a marker, the producer has no coordinator epoch; 0 is no newer than any real one.
    """
    for producer in (await describe_producers(cluster, [partition]))[partition]:
        if producer.transaction_start_offset == start_offset:
            return AbortTransactionSpec(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch or 0,
            )
    return None


async def abort_transaction(cluster: Cluster, spec: AbortTransactionSpec) -> None:
    """Write an abort marker to the partition, without a coordinator."""
    topic, index = spec.partition
    marker = WriteTxnMarkersRequest.Marker(
        producer_id=spec.producer_id,
        producer_epoch=spec.producer_epoch,
        transaction_result=False,
        coordinator_epoch=spec.coordinator_epoch,
        topics=(WriteTxnMarkersRequest.Marker.Topic(name=topic, partition_indexes=(index,)),),
    )

    async def send(
        connection: Connection, _partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        response = await connection.call(
            WriteTxnMarkersRequest(markers=(marker,)),
            WriteTxnMarkersResponse,
            max_version=_WRITE_TXN_MARKERS_MAX_VERSION,
        )
        return {
            TopicPartition(result_topic.name, result.partition_index): error_of(
                result.error_code,
                f"WriteTxnMarkers request with {spec} {_reason(result.error_code, spec)}",
            )
            if result.error_code
            else None
            for written in response.markers
            for result_topic in written.topics
            for result in result_topic.partitions
        }

    await send_to_leaders(cluster, [spec.partition], send)


def _reason(code: int, spec: AbortTransactionSpec) -> str:
    match code:
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return "failed due to cluster authorization error"
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return "failed due an invalid producer epoch"
        case ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return (
                f"failed since the provided coordinator epoch {spec.coordinator_epoch} has been "
                "fenced by the active coordinator"
            )
    return "failed due to unexpected error"
