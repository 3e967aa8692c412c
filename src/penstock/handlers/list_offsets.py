"""ListOffsets: the start and end of a partition, and offsets by timestamp.

Behaviour
  A timestamp in milliseconds finds the first record at or after it (-1 if there is none). Special
  values: -1 latest (the high watermark; with read_committed the last stable offset), -2 earliest,
  -3 the record with the largest timestamp, -4 earliest local (the same as earliest), -5 latest
  tiered and -6 earliest not yet tiered (-1: there is none). Records that a consumer may not read
  yet are not found. Other negative values are UNSUPPORTED_VERSION, and a partition that is listed
  twice is INVALID_REQUEST, as in Kafka. The replica id is ignored. Only the leader responses; after
  an election, until its high watermark reaches the start of its epoch, with OFFSET_NOT_AVAILABLE
  for all but the earliest (KIP-207).

Version notes
  v2 brings the isolation level, v4 leader epochs, v7 -3, v8 -4, v9 -5, v10 a timeout (not needed),
  v11 -6.

Not implemented
  Tiered storage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.ids import NO_LEADER_EPOCH, NO_TIMESTAMP, UNKNOWN_OFFSET
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Partition
    from penstock.node.replication.replicas import Replicas

RequestedPartition = ListOffsetsRequest.Topic.Partition
TopicResponse = ListOffsetsResponse.Topic
PartitionResponse = TopicResponse.Partition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
_SINCE: Mapping[int, int] = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
READ_COMMITTED = 1
_EPOCHS_SINCE = 4
_NOT_AVAILABLE_SINCE = 5
# These do not depend on the high watermark.
_WITHOUT_HIGH_WATERMARK = frozenset({EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING})

_Pending = Coroutine[Any, Any, PartitionResponse]


class Parts(Protocol):
    metadata: MetadataView
    replicas: Replicas


def handle(
    parts: Parts, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    repeated = _repeated(request)
    topics = [
        (
            topic.name,
            [
                _find(parts, request, topic.name, requested, context.version, repeated)
                for requested in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    if any(
        not isinstance(response, PartitionResponse)
        for _name, responses in topics
        for response in responses
    ):
        return _look_up(topics)
    return ListOffsetsResponse(
        topics=tuple(
            TopicResponse(
                name=name,
                partitions=tuple(
                    response for response in responses if isinstance(response, PartitionResponse)
                ),
            )
            for name, responses in topics
        )
    )


async def _look_up(
    topics: list[tuple[str, list[PartitionResponse | _Pending]]],
) -> ListOffsetsResponse:
    found = []
    for name, responses in topics:
        partitions = [
            response if isinstance(response, PartitionResponse) else await response
            for response in responses
        ]
        found.append(TopicResponse(name=name, partitions=tuple(partitions)))
    return ListOffsetsResponse(topics=tuple(found))


def _repeated(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for requested in topic.partitions:
            place = (topic.name, requested.partition_index)
            (repeated if place in seen else seen).add(place)
    return repeated


def _find(
    parts: Parts,
    request: ListOffsetsRequest,
    name: str,
    requested: RequestedPartition,
    version: int,
    repeated: set[tuple[str, int]],
) -> PartitionResponse | _Pending:
    try:
        if (name, requested.partition_index) in repeated:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"partition {requested.partition_index} of {name} is listed twice",
            )
        if requested.timestamp < 0 and version < _SINCE.get(requested.timestamp, version + 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {requested.timestamp} is not known in version {version}",
            )
        partition = parts.replicas.partition(parts.metadata.topic(name), requested.partition_index)
        partition.check_leader(requested.current_leader_epoch)
        if partition.is_behind_epoch and requested.timestamp not in _WITHOUT_HIGH_WATERMARK:
            # A new leader does not know yet how far its log is committed (KIP-207).
            code = (
                ErrorCode.OFFSET_NOT_AVAILABLE
                if version >= _NOT_AVAILABLE_SINCE
                else ErrorCode.LEADER_NOT_AVAILABLE
            )
            raise KafkaError(
                code,
                (
                    f"the new leader of {name}-{requested.partition_index} does not know its high "
                    "watermark yet"
                ),
            )
    except KafkaError as error:
        return PartitionResponse(partition_index=requested.partition_index, error_code=error.code)
    readable = (
        partition.last_stable_offset
        if request.isolation_level == READ_COMMITTED
        else partition.high_watermark
    )
    return _offset(partition, requested, readable, has_epochs=version >= _EPOCHS_SINCE)


def _offset(
    partition: Partition, requested: RequestedPartition, readable: int, *, has_epochs: bool
) -> PartitionResponse | _Pending:
    index = requested.partition_index
    if requested.timestamp == LATEST:
        return PartitionResponse(
            partition_index=index,
            offset=readable,
            leader_epoch=partition.leader_epoch if has_epochs else NO_LEADER_EPOCH,
        )
    if requested.timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = partition.earliest_epoch if has_epochs else NO_LEADER_EPOCH
        return PartitionResponse(
            partition_index=index, offset=partition.log_start_offset, leader_epoch=epoch
        )
    if requested.timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return PartitionResponse(partition_index=index)
    return _by_time(partition, requested, readable, has_epochs)


async def _by_time(
    partition: Partition, requested: RequestedPartition, readable: int, has_epochs: bool
) -> PartitionResponse:
    index = requested.partition_index
    try:
        by_maximum = requested.timestamp == MAX_TIMESTAMP
        found = await (
            partition.offset_of_max_timestamp()
            if by_maximum
            else partition.offset_for_timestamp(requested.timestamp)
        )
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code)
    if found is None or found[1] >= readable:
        return PartitionResponse(
            partition_index=index,
            timestamp=NO_TIMESTAMP,
            offset=UNKNOWN_OFFSET,
            leader_epoch=NO_LEADER_EPOCH,
        )
    timestamp, offset, leader_epoch = found
    return PartitionResponse(
        partition_index=index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch if has_epochs else NO_LEADER_EPOCH,
    )
