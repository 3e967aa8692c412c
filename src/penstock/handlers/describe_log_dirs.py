"""DescribeLogDirs: the log directories of this broker, and the size of each partition in them.

Behaviour
  Every directory is answered. One that is offline has KAFKA_STORAGE_ERROR and no partitions. Null asks for all partitions; those named
  that are not here are left out.

Version notes
  v3 brings an error for the whole, v4 the bytes of the volume, v5 whether the directory is cordoned (never: that is not there yet).

Not implemented
  The volume's bytes: -1, unknown. Replicas that move between directories (is_future_key).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.ids import TopicPartition
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from penstock.node.node import Node

Result = DescribeLogDirsResponse.Result
Sizes = dict[str, dict[str, list[tuple[int, int]]]]


def handle(node: Node, request: DescribeLogDirsRequest, _context: RequestContext) -> DescribeLogDirsResponse:
    sizes = _sizes(node, request)
    results = []
    for directory in node.store.directories:
        if directory.failure is not None:
            results.append(Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path))
        else:
            results.append(Result(log_dir=directory.path, topics=_topics(sizes.get(directory.path, {}))))
    return DescribeLogDirsResponse(results=tuple(results))


def _sizes(node: Node, request: DescribeLogDirsRequest) -> Sizes:
    """Directory -> topic -> (partition, bytes)."""
    if request.topics is None:
        names = list(node.partitions)
    else:
        asked = dict.fromkeys(TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions)
        names = [name for name in asked if name in node.partitions]
    sizes: Sizes = {}
    for name in names:
        partition = node.partitions[name]
        sizes.setdefault(partition.directory.path, {}).setdefault(name.topic, []).append((name.partition, partition.size))
    return sizes


def _topics(sizes: dict[str, list[tuple[int, int]]]) -> tuple[Result.Topic, ...]:
    return tuple(
        Result.Topic(
            name=name,
            partitions=tuple(Result.Topic.Partition(partition_index=index, partition_size=size) for index, size in sorted(partitions)),
        )
        for name, partitions in sorted(sizes.items())
    )
