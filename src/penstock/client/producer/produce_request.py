"""Produce requests with one batch, and the results of their partition.

Pure. `sender` decides when they are sent and what follows from the results.
"""

from __future__ import annotations

from penstock.client.metadata import TopicInfo
from penstock.client.producer.accumulator import ProducerBatch
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse

PartitionResponse = ProduceResponse.Response.PartitionResponse

# Produce v13 identifies topics by id only. From v12 on, leaders add partitions to transactions
# (transaction.version 2, KIP-890).
_MAX_VERSION_BY_NAME = 12
_MAX_VERSION_TRANSACTION_V1 = 11


def produce_request(
    topic: TopicInfo,
    partition: int,
    records: bytes,
    *,
    acks: int,
    timeout_s: float,
    transactional_id: str | None,
) -> ProduceRequest:
    partition_data = ProduceRequest.TopicData.PartitionData(index=partition, records=records)
    data = ProduceRequest.TopicData(
        name=topic.name, topic_id=topic.id, partition_data=(partition_data,)
    )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=(data,),
    )


def max_produce_version(topic: TopicInfo, *, transaction_v1: bool) -> int | None:
    """Return the newest version that may be used; `transaction_v1` is a transaction whose
    partitions the producer adds itself."""
    if transaction_v1:
        return _MAX_VERSION_TRANSACTION_V1
    return _MAX_VERSION_BY_NAME if topic.id == NO_UUID else None


def only_partition(response: ProduceResponse) -> PartitionResponse:
    partitions = [
        partition for topic in response.responses for partition in topic.partition_responses
    ]
    if len(partitions) != 1:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the Produce response has {len(partitions)} partitions; expected 1",
        )
    return partitions[0]


def record_errors(
    batch: ProducerBatch, error: KafkaError, response: PartitionResponse
) -> list[KafkaError]:
    """Return one error per record: the broker names the invalid records (KIP-467), and writes
    none of the batch."""
    invalid = {
        record.batch_index: record.batch_index_error_message for record in response.record_errors
    }
    refused_with_them = KafkaError(
        error.code, "not written, because another record of the same batch was refused"
    )
    return [
        KafkaError(error.code, invalid[index] or error.message)
        if index in invalid
        else refused_with_them
        for index in range(len(batch.futures))
    ]
