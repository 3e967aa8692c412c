"""AlterReplicaLogDirs: replicas move to other log directories of this broker, and are served all
the while.

Behaviour
  Answered when the moves have begun; DescribeLogDirs tells how far they are. A replica that is
  there already, or on its way there, is left alone; one on its way elsewhere turns round.
  LOG_DIR_NOT_FOUND for a path that is none of DescribeLogDirs', KAFKA_STORAGE_ERROR where any
  directory is offline, UNKNOWN_TOPIC_OR_PARTITION for what the cluster does not have,
  REPLICA_NOT_AVAILABLE for a partition that this broker does not have (the directory is remembered
  for it), INVALID_TOPIC_EXCEPTION for a topic whose name leaves no room for the name of the
  directory under which a replica is copied. Of a partition that is named twice the last word
  counts.

Version notes
  v2 is flexible.

Not implemented
  A move does not outlive the broker: after a restart it must be asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

if TYPE_CHECKING:
    from penstock.node.partition.replica_moves import ReplicaMoves

Result = AlterReplicaLogDirsResponse.Result


class Parts(Protocol):
    replica_moves: ReplicaMoves


def handle(
    parts: Parts, request: AlterReplicaLogDirsRequest, _context: RequestContext
) -> AlterReplicaLogDirsResponse:
    wanted = {
        TopicPartition(topic.name, index): target.path
        for target in request.dirs
        for topic in target.topics
        for index in topic.partitions
    }
    topics: dict[str, list[Result.Partition]] = {}
    for partition, path in wanted.items():
        code = _move(parts, partition, path)
        topics.setdefault(partition.topic, []).append(
            Result.Partition(partition_index=partition.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(
        results=tuple(
            Result(topic_name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        )
    )


def _move(parts: Parts, partition: TopicPartition, path: str) -> ErrorCode:
    try:
        parts.replica_moves.move(partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
