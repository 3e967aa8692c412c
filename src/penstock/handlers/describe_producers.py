"""DescribeProducers: the producers that a replica remembers, to find hanging transactions
(KIP-664).

Behaviour
  Every replica answers, leader or not. A producer is listed until it expires
  (producer.id.expiration.ms), with the first offset of its open transaction, or -1.

Version notes
  -

Not implemented
  -
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.controller.topics.names import check_topic_name
from penstock.errors import KafkaError
from penstock.handlers.context import Exclusive, RequestContext
from penstock.limits import DESCRIBED_PRODUCERS_A_TURN
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Partition
    from penstock.node.replication.replicas import Replicas

TopicResponse = DescribeProducersResponse.Topic
PartitionResponse = TopicResponse.Partition
ActiveProducer = PartitionResponse.ActiveProducer

_NO_OFFSET = -1


class Parts(Protocol):
    metadata: MetadataView
    replicas: Replicas


def handle(
    parts: Parts, request: DescribeProducersRequest, _context: RequestContext
) -> Exclusive[DescribeProducersResponse]:
    return Exclusive(_describe(parts, request))


async def _describe(parts: Parts, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        partitions = [
            await _partition(parts, topic.name, index) for index in topic.partition_indexes
        ]
        topics.append(TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return DescribeProducersResponse(topics=tuple(topics))


async def _partition(parts: Parts, name: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(name)
        partition = parts.replicas.partition(parts.metadata.topic(name), index)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return PartitionResponse(partition_index=index, active_producers=await _producers(partition))


async def _producers(partition: Partition) -> tuple[ActiveProducer, ...]:
    producers = []
    for producer_id, producer in partition.producers():
        producers.append(
            ActiveProducer(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=(
                    _NO_OFFSET if producer.txn_first_offset is None else producer.txn_first_offset
                ),
            )
        )
        if len(producers) % DESCRIBED_PRODUCERS_A_TURN == 0:
            await asyncio.sleep(0)
    return tuple(producers)
