"""ListOffsets: where a partition begins and ends, and where a time is in it.

Behaviour
  The timestamp asked for is a time in milliseconds (the first record of that time or later; -1
  where there is none), or a special value: -1 latest (the high watermark; for read_committed the
  last stable offset), -2 earliest, -3 the record with the largest timestamp, -4 earliest local (the
  same as earliest), -5 latest tiered and -6 earliest not yet tiered (none: -1). No record that a
  consumer may not read yet is found. Other negative values are UNSUPPORTED_VERSION, and a partition
  that is named twice INVALID_REQUEST, as in Kafka. A replica id gives a client nothing more. Only
  the leader answers; right after an election, before its high watermark has reached the start of
  its epoch, OFFSET_NOT_AVAILABLE for all but the earliest.

Version notes
  v2 brings the isolation level, v4 leader epochs, v7 -3, v8 -4, v9 -5, v10 a timeout (not needed),
  v11 -6.

Not implemented
  Tiered storage: nothing is looked up remotely.
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

Asked = ListOffsetsRequest.Topic.Partition
TopicAnswer = ListOffsetsResponse.Topic
Answer = TopicAnswer.Partition

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
# What does not depend on the high watermark.
_NEVER_LATE = frozenset({EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING})

_Pending = Coroutine[Any, Any, Answer]


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
                _find(parts, request, topic.name, asked, context.version, repeated)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    if any(not isinstance(answer, Answer) for _name, answers in topics for answer in answers):
        return _look_up(topics)
    return ListOffsetsResponse(
        topics=tuple(
            TopicAnswer(
                name=name,
                partitions=tuple(answer for answer in answers if isinstance(answer, Answer)),
            )
            for name, answers in topics
        )
    )


async def _look_up(topics: list[tuple[str, list[Answer | _Pending]]]) -> ListOffsetsResponse:
    found = []
    for name, answers in topics:
        partitions = [answer if isinstance(answer, Answer) else await answer for answer in answers]
        found.append(TopicAnswer(name=name, partitions=tuple(partitions)))
    return ListOffsetsResponse(topics=tuple(found))


def _repeated(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            place = (topic.name, asked.partition_index)
            (repeated if place in seen else seen).add(place)
    return repeated


def _find(
    parts: Parts,
    request: ListOffsetsRequest,
    name: str,
    asked: Asked,
    version: int,
    repeated: set[tuple[str, int]],
) -> Answer | _Pending:
    try:
        if (name, asked.partition_index) in repeated:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"partition {asked.partition_index} of {name} is asked for twice",
            )
        if asked.timestamp < 0 and version < _SINCE.get(asked.timestamp, version + 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {asked.timestamp} means nothing in version {version}",
            )
        partition = parts.replicas.partition(parts.metadata.topic(name), asked.partition_index)
        partition.check_leader(asked.current_leader_epoch)
        if partition.is_behind_epoch and asked.timestamp not in _NEVER_LATE:
            # How far records are committed is not known yet after an election (KIP-207).
            code = (
                ErrorCode.OFFSET_NOT_AVAILABLE
                if version >= _NOT_AVAILABLE_SINCE
                else ErrorCode.LEADER_NOT_AVAILABLE
            )
            raise KafkaError(
                code,
                (
                    f"the new leader of {name}-{asked.partition_index} does not know its high "
                    "watermark yet"
                ),
            )
    except KafkaError as error:
        return Answer(partition_index=asked.partition_index, error_code=error.code)
    readable = (
        partition.last_stable_offset
        if request.isolation_level == READ_COMMITTED
        else partition.high_watermark
    )
    return _offset(partition, asked, readable, tells_epochs=version >= _EPOCHS_SINCE)


def _offset(
    partition: Partition, asked: Asked, readable: int, *, tells_epochs: bool
) -> Answer | _Pending:
    index = asked.partition_index
    if asked.timestamp == LATEST:
        return Answer(
            partition_index=index,
            offset=readable,
            leader_epoch=partition.leader_epoch if tells_epochs else NO_LEADER_EPOCH,
        )
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = partition.earliest_epoch if tells_epochs else NO_LEADER_EPOCH
        return Answer(partition_index=index, offset=partition.log_start_offset, leader_epoch=epoch)
    if asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return Answer(partition_index=index)
    return _by_time(partition, asked, readable, tells_epochs)


async def _by_time(partition: Partition, asked: Asked, readable: int, tells_epochs: bool) -> Answer:
    index = asked.partition_index
    try:
        by_maximum = asked.timestamp == MAX_TIMESTAMP
        found = await (
            partition.offset_of_max_timestamp()
            if by_maximum
            else partition.offset_for_timestamp(asked.timestamp)
        )
    except KafkaError as error:
        return Answer(partition_index=index, error_code=error.code)
    if found is None or found[1] >= readable:
        return Answer(
            partition_index=index,
            timestamp=NO_TIMESTAMP,
            offset=UNKNOWN_OFFSET,
            leader_epoch=NO_LEADER_EPOCH,
        )
    timestamp, offset, leader_epoch = found
    return Answer(
        partition_index=index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch if tells_epochs else NO_LEADER_EPOCH,
    )
