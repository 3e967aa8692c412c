"""AlterReplicaLogDirs: moves replicas to other log directories of this broker, which keeps serving
them.

Behaviour
  The response is sent when the moves have started; DescribeLogDirs shows their progress. A replica
  that is in the directory, or on its way there, is left alone; a replica on its way to another
  directory is redirected. If a request gives a partition twice, the last entry counts. A move
  continues after a restart of the broker.
  LOG_DIR_NOT_FOUND for a path that DescribeLogDirs does not list, INVALID_REPLICA_ASSIGNMENT for a
  cordoned directory (KIP-1066), KAFKA_STORAGE_ERROR if a
  directory is offline, UNKNOWN_TOPIC_OR_PARTITION for a partition that does not exist,
  REPLICA_NOT_AVAILABLE for a partition without a replica here (the broker will create it in this
  directory), INVALID_TOPIC_EXCEPTION if the topic's name is too long for the name of a future
  replica's directory.

Version notes
  v2 is flexible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
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
) -> Awaitable[AlterReplicaLogDirsResponse]:
    return _move_all(parts, request)


async def _move_all(
    parts: Parts, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    targets = {
        TopicPartition(topic.name, index): target.path
        for target in request.dirs
        for topic in target.topics
        for index in topic.partitions
    }
    topics: dict[str, list[Result.Partition]] = {}
    for partition, path in targets.items():
        code = _move(parts, partition, path)
        topics.setdefault(partition.topic, []).append(
            Result.Partition(partition_index=partition.partition, error_code=code)
        )
        # The start of a move creates two directories and their files, and a request may have
        # thousands.
        await asyncio.sleep(0)
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
