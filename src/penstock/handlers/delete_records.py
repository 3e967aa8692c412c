"""DeleteRecords: moves the log start of partitions forward, up to the high watermark.

Behaviour
  An offset of -1 deletes all committed records. An offset above the high watermark is
  OFFSET_OUT_OF_RANGE; one below the log start changes nothing. A topic that is only compacted is
  POLICY_VIOLATION, an internal one INVALID_TOPIC_EXCEPTION. The response has the low watermark, the
  smallest log start of all replicas that are not fenced. It waits until the low watermark has
  reached the offset, or until timeout_ms: then the partition has REQUEST_TIMED_OUT, and its
  followers delete the records later.

Version notes
  v2 is flexible; nothing else changes.

Not implemented
  -
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.topic_view import INTERNAL_TOPICS
from penstock.node.delayed import DelayedResponse
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Partition
    from penstock.node.replication.replicas import Replicas
    from penstock.world import Clock

TopicResponse = DeleteRecordsResponse.Topic
PartitionResponse = TopicResponse.Partition

_NO_LOW_WATERMARK = -1


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    replicas: Replicas


class _Deletion(NamedTuple):
    """A partition whose followers have not deleted the records yet, and the place of its
    response."""

    partition: Partition
    offset: int
    responses: list[PartitionResponse]
    position: int


class DelayedDelete(DelayedResponse[DeleteRecordsResponse]):
    """The response while low watermarks have not reached their offsets."""

    __slots__ = ("_remaining", "_topics")

    def __init__(
        self,
        topics: list[tuple[str, list[PartitionResponse]]],
        deletions: list[_Deletion],
        deadline: float,
    ) -> None:
        super().__init__()
        self._topics = topics
        self._remaining = len(deletions)
        for deletion in deletions:
            deletion.partition.on_deleted(deletion.offset, deadline, partial(self._ended, deletion))

    def _ended(self, deletion: _Deletion, error: KafkaError | None) -> None:
        current = deletion.responses[deletion.position]
        if error is None:
            code, low_watermark = ErrorCode.NONE, deletion.offset
        elif error.code is ErrorCode.REQUEST_TIMED_OUT:
            code, low_watermark = error.code, current.low_watermark
        else:
            code, low_watermark = error.code, _NO_LOW_WATERMARK
        deletion.responses[deletion.position] = PartitionResponse(
            partition_index=current.partition_index, low_watermark=low_watermark, error_code=code
        )
        self._remaining -= 1
        if self._remaining == 0:
            self.complete(_response(self._topics))


def handle(
    parts: Parts, request: DeleteRecordsRequest, _context: RequestContext
) -> DeleteRecordsResponse | DelayedDelete:
    topics: list[tuple[str, list[PartitionResponse]]] = []
    deletions: list[_Deletion] = []
    for topic in request.topics:
        responses: list[PartitionResponse] = []
        topics.append((topic.name, responses))
        for position, requested in enumerate(topic.partitions):
            index = requested.partition_index
            try:
                partition = _partition(parts, topic.name, index)
                offset = partition.delete_records(requested.offset)
                low_watermark = partition.low_watermark
            except KafkaError as error:
                responses.append(
                    PartitionResponse(
                        partition_index=index,
                        low_watermark=_NO_LOW_WATERMARK,
                        error_code=error.code,
                    )
                )
                continue
            responses.append(PartitionResponse(partition_index=index, low_watermark=low_watermark))
            if low_watermark < offset:
                deletions.append(_Deletion(partition, offset, responses, position))
    if not deletions:
        return _response(topics)
    return DelayedDelete(topics, deletions, parts.clock.monotonic() + request.timeout_ms / 1000)


def _response(topics: list[tuple[str, list[PartitionResponse]]]) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            TopicResponse(name=name, partitions=tuple(responses)) for name, responses in topics
        )
    )


def _partition(parts: Parts, name: str, index: int) -> Partition:
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
    return partition
