"""Produce requests with the batches of several partitions, their results, and advice for errors.

Pure. `sender` decides which batches go into a request, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.errors import error_of
from penstock.client.metadata import TopicInfo
from penstock.client.producer.produce_request import max_produce_version
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.batch import read_header
from penstock.spark.options import SinkOptions

_WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(frozen=True, slots=True, eq=False)
class PendingBatch:
    """An encoded record batch, and the time by which it must be written."""

    partition: TopicPartition
    records: bytes
    deadline_s: float


@dataclass(frozen=True, slots=True, eq=False)
class RoutedBatch:
    """The next batch of a partition, with its topic as the leader was looked up."""

    batch: PendingBatch
    topic: TopicInfo


def produce_request(
    routed: Sequence[RoutedBatch], *, acks: int, timeout_s: float, transactional_id: str | None
) -> ProduceRequest:
    topics: dict[str, TopicInfo] = {}
    partitions: dict[str, list[ProduceRequest.TopicData.PartitionData]] = {}
    for entry in routed:
        # Metadata that was fetched in between may differ in the leaders, not in the id: the broker
        # refuses an id that is not the topic's any more.
        topics.setdefault(entry.topic.name, entry.topic)
        partitions.setdefault(entry.topic.name, []).append(
            ProduceRequest.TopicData.PartitionData(
                index=entry.batch.partition.partition, records=entry.batch.records
            )
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=tuple(
            ProduceRequest.TopicData(
                name=name, topic_id=topics[name].id, partition_data=tuple(partition_data)
            )
            for name, partition_data in partitions.items()
        ),
    )


def max_version(routed: Sequence[RoutedBatch], *, transaction_v1: bool) -> int | None:
    """Return the newest version of Produce that may be used for all topics."""
    versions = [max_produce_version(entry.topic, transaction_v1=transaction_v1) for entry in routed]
    return min((version for version in versions if version is not None), default=None)


def produce_errors(
    routed: Sequence[RoutedBatch], response: ProduceResponse
) -> dict[TopicPartition, KafkaError]:
    """Return the error of each partition whose batch is not written.

    A partition without a result has one too.
    """
    names = {entry.topic.id: entry.topic.name for entry in routed}
    results = {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), result.index): result
        for topic in response.responses
        for result in topic.partition_responses
    }
    errors: dict[TopicPartition, KafkaError] = {}
    for entry in routed:
        partition = entry.batch.partition
        result = results.get(partition)
        if result is None:
            errors[partition] = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the Produce response has no result for it"
            )
        elif result.error_code not in _WRITTEN:
            message = result.error_message or "the broker refused the records"
            errors[partition] = error_of(result.error_code, message)
    return errors


def base_offsets(
    routed: Sequence[RoutedBatch], response: ProduceResponse
) -> dict[TopicPartition, int]:
    """Return the offset of the first record of each partition's batch, where it is known: a leader
    does not tell it for a duplicate of an older batch."""
    names = {entry.topic.id: entry.topic.name for entry in routed}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), result.index): (
            result.base_offset
        )
        for topic in response.responses
        for result in topic.partition_responses
        if result.error_code in _WRITTEN and result.base_offset >= 0
    }


def with_advice(error: KafkaError, batch: PendingBatch, options: SinkOptions) -> KafkaError:
    """Return the error of a batch that is not written, with what to do."""
    advice = ""
    if error.code in _TOO_LARGE:
        advice = f": {_size_advice(error.code, batch.records, options)}"
    elif error.code.retriable:
        advice = (
            f": not written within {options.delivery_timeout_s:g} s (the option "
            "kafka.delivery.timeout.ms)"
        )
    return KafkaError(error.code, f"{batch.partition}: {error.message}{advice}")


def _size_advice(code: ErrorCode, records: bytes, options: SinkOptions) -> str:
    """A smaller kafka.batch.size does not help a batch of one record."""
    setting = "max.message.bytes" if code is ErrorCode.MESSAGE_TOO_LARGE else "segment.bytes"
    count = read_header(records).record_count
    if count == 1:
        return (
            f"it has one record: raise {setting} of the topic to at least {len(records)}, or write "
            "a smaller record"
        )
    return (
        f"it has {count} records: raise {setting} of the topic to at least {len(records)}, or "
        f"lower the option kafka.batch.size ({options.batch_bytes})"
    )
