"""DeleteRecords: moves the log start of partitions forward, up to the high watermark.

Behaviour
  An offset of -1 deletes all committed records. An offset above the high watermark is
  OFFSET_OUT_OF_RANGE; one below the log start changes nothing. A topic that is only compacted is
  POLICY_VIOLATION, an internal one INVALID_TOPIC_EXCEPTION. The response has the new log start (low
  watermark), or -1 with an error.

Version notes
  v2 is flexible; nothing else changes.

Not implemented
  Waiting until the followers have deleted the records (timeout_ms).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.topic_view import INTERNAL_TOPICS
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.replication.replicas import Replicas

TopicResponse = DeleteRecordsResponse.Topic
PartitionResponse = TopicResponse.Partition


class Parts(Protocol):
    metadata: MetadataView
    replicas: Replicas


def handle(
    parts: Parts, request: DeleteRecordsRequest, _context: RequestContext
) -> DeleteRecordsResponse:
    topics = tuple(
        TopicResponse(
            name=topic.name,
            partitions=tuple(
                _delete(parts, topic.name, requested.partition_index, requested.offset)
                for requested in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return DeleteRecordsResponse(topics=topics)


def _delete(parts: Parts, name: str, index: int, offset: int) -> PartitionResponse:
    try:
        if name in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"records of the internal topic {name} cannot be deleted",
            )
        partition = parts.replicas.partition(parts.metadata.topic(name), index)
        config = parts.metadata.topic_config(name)
        if config.compacts and not config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{name} is compacted: its cleanup.policy does not allow deletion",
            )
        return PartitionResponse(
            partition_index=index, low_watermark=partition.delete_records(offset)
        )
    except KafkaError as error:
        return PartitionResponse(partition_index=index, low_watermark=-1, error_code=error.code)
