"""DescribeLogDirs: the log directories of this broker, the size of their volumes, and the size of
each replica in them.

Behaviour
  The response has every directory; an offline one has KAFKA_STORAGE_ERROR and no replicas. Null
  requests all partitions; requested partitions without a replica here are left out. A replica that
  moves to another directory is in both: in the new one as a future replica, whose lag is what is
  not copied yet.

Version notes
  v3 adds a top-level error, v4 the bytes of the volume, v5 whether the directory is cordoned
  (KIP-1066).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.ids import TopicPartition
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.world import Volume

if TYPE_CHECKING:
    from penstock.node.replication.replicas import Replicas
    from penstock.world import Disk, Offload

Result = DescribeLogDirsResponse.Result
Replica = Result.Topic.Partition
# Directory -> topic -> replicas.
ReplicasByDirectory = dict[str, dict[str, list[Replica]]]


class Parts(Protocol):
    disk: Disk
    offload: Offload
    replicas: Replicas


def handle(
    parts: Parts, request: DescribeLogDirsRequest, _context: RequestContext
) -> Awaitable[DescribeLogDirsResponse]:
    return _describe(parts, request)


async def _describe(parts: Parts, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    volumes = {
        directory.path: await _volume(parts, directory.path)
        for directory in parts.replicas.store.directories
        if directory.failure is None
    }
    replicas = _replicas(parts, request)
    results = []
    for directory in parts.replicas.store.directories:
        volume = volumes.get(directory.path)
        if volume is None or directory.failure is not None:
            results.append(Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path))
            continue
        topics = _topics(replicas.get(directory.path, {}))
        results.append(
            Result(
                log_dir=directory.path,
                topics=topics,
                total_bytes=volume.total_bytes,
                usable_bytes=volume.free_bytes,
                is_cordoned=directory.cordoned,
            )
        )
    return DescribeLogDirsResponse(results=tuple(results))


async def _volume(parts: Parts, path: str) -> Volume | None:
    """Read the volume's size in a thread: a network volume may hang, and must not block the event
    loop."""
    try:
        return await parts.offload.read(parts.disk.volume, path)
    except OSError:
        return None


def _replicas(parts: Parts, request: DescribeLogDirsRequest) -> ReplicasByDirectory:
    partitions, moves = parts.replicas.partitions, parts.replicas.store.moves.under_way
    if request.topics is None:
        names = list(partitions)
    else:
        requested = dict.fromkeys(
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        )
        names = [name for name in requested if name in partitions]
    replicas: ReplicasByDirectory = {}
    for name in names:
        partition, move = partitions[name], moves.get(name)
        lag = max(partition.high_watermark - partition.log_end_offset, 0)
        current = Replica(
            partition_index=name.partition, partition_size=partition.size, offset_lag=lag
        )
        replicas.setdefault(partition.directory.path, {}).setdefault(name.topic, []).append(current)
        if move is not None:
            lag = partition.log_end_offset - move.future.end_offset
            future = Replica(
                partition_index=name.partition,
                partition_size=move.future.size,
                offset_lag=lag,
                is_future_key=True,
            )
            replicas.setdefault(move.future.directory.path, {}).setdefault(name.topic, []).append(
                future
            )
    return replicas


def _topics(replicas: dict[str, list[Replica]]) -> tuple[Result.Topic, ...]:
    return tuple(
        Result.Topic(
            name=name,
            partitions=tuple(sorted(partitions, key=lambda replica: replica.partition_index)),
        )
        for name, partitions in sorted(replicas.items())
    )
