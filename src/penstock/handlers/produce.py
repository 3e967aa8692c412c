"""Produce: record batches are appended to partitions, unread.

Behaviour
  Every partition has its own outcome. acks=1 is answered after the append, acks=all (-1) when the
  batch is committed or the timeout has passed (REQUEST_TIMED_OUT: it may still be committed later);
  any other acks but 0 is INVALID_REQUIRED_ACKS and appends nothing. With acks=0 nothing is
  answered; if a partition failed, the others are appended all the same and KafkaError is raised,
  upon which the server closes the connection: that is how such a producer learns of it. A duplicate
  of an idempotent producer is answered with the offset it had. Where another broker leads, the
  response names it. Kafka's internal topics are written by brokers alone: INVALID_TOPIC_EXCEPTION,
  but for the client id __admin_client.

Version notes
  zstd from v7 on, before UNSUPPORTED_COMPRESSION_TYPE. v8 brings error messages. v10 names the
  current leader and its address. v13 names topics by id. v0 to v2 are advertised for the sake of
  old librdkafka, and not served.

  A batch for a compacted topic in which a record has no key is INVALID_RECORD, and record_errors
  say which: such a topic's batches are opened, and so are those of one with a compression.type of
  its own. That may take place elsewhere; the order of a partition's batches is kept, and the
  request is answered when all are appended.

Not implemented
  Transactions: a transactional id, or a batch marked transactional, is INVALID_TXN_STATE (none can
  have been begun).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.leaders import endpoints_of
from penstock.handlers.topic_view import INTERNAL_TOPICS
from penstock.ids import Buffer
from penstock.metadata.image import TopicImage
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.batch import CODEC_MASK, TRANSACTIONAL_BIT
from penstock.records.compression import Codec
from penstock.records.rewriting import RecordsRefused

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Appended, Partition
    from penstock.node.replication.replicas import Replicas
    from penstock.world import Clock

TopicResponse = ProduceResponse.Response
PartitionResponse = TopicResponse.PartitionResponse
RecordError = PartitionResponse.RecordError

NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
_ADMIN_CLIENT = "__admin_client"
_ZSTD_SINCE = 7
_LEADERS_SINCE = 10
# The low byte of a batch's attributes, which says the codec and whether it is transactional.
_ATTRIBUTES_AT = 22


class _Uncommitted(NamedTuple):
    """An append that acks=all must wait for, and where its answer goes. The topic is empty for
    clients that cannot be told who leads."""

    partition: Partition
    end_offset: int
    answers: list[PartitionResponse]
    place: int
    topic: str


class _Later(NamedTuple):
    """An append whose batch is opened elsewhere first, and where its answer goes."""

    appending: asyncio.Task[Appended]
    asked: _Asked


class _Asked(NamedTuple):
    """One partition of a request. The topic is None for clients that cannot be told who leads."""

    partition: Partition
    number: int
    answers: list[PartitionResponse]
    place: int
    topic: TopicImage | None


@dataclass(slots=True)
class _Progress:
    """What is still to come before a request can be answered."""

    uncommitted: list[_Uncommitted] = field(default_factory=list)
    later: list[_Later] = field(default_factory=list)


_IDS_SINCE = 13


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    replicas: Replicas


def handle(
    parts: Parts, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    progress = _Progress()
    deadline = parts.clock.monotonic() + request.timeout_ms / 1000
    topics = [
        (topic, _append_topic(parts, request, topic, context, progress))
        for topic in request.topic_data
    ]
    if progress.later:
        return _when_appended(parts, request, context, topics, progress, deadline)
    return _answer(parts, request, context, topics, progress.uncommitted, deadline)


_Topics = list[tuple[ProduceRequest.TopicData, list[PartitionResponse]]]


def _answer(
    parts: Parts,
    request: ProduceRequest,
    context: RequestContext,
    topics: _Topics,
    uncommitted: list[_Uncommitted],
    deadline: float,
) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
    if request.acks == NO_ACKS:
        _raise_first_error(topics)
        return None
    if not uncommitted:
        return _response(parts, topics, context)
    return _when_committed(parts, uncommitted, deadline, partial(_response, parts, topics, context))


async def _when_appended(
    parts: Parts,
    request: ProduceRequest,
    context: RequestContext,
    topics: _Topics,
    progress: _Progress,
    deadline: float,
) -> ProduceResponse | None:
    try:
        await asyncio.wait([one.appending for one in progress.later])
    except asyncio.CancelledError:
        for one in progress.later:
            one.appending.cancel()
        raise
    for appending, asked in progress.later:
        try:
            asked.answers[asked.place] = _appended(
                request, asked, appending.result(), progress.uncommitted
            )
        except KafkaError as error:
            asked.answers[asked.place] = _failed(asked.topic, asked.number, error)
    answer = _answer(parts, request, context, topics, progress.uncommitted, deadline)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _append_topic(
    parts: Parts,
    request: ProduceRequest,
    data: ProduceRequest.TopicData,
    context: RequestContext,
    progress: _Progress,
) -> list[PartitionResponse]:
    version = context.version
    answers: list[PartitionResponse] = []
    topic: TopicImage | None = None
    for place, part in enumerate(data.partition_data):
        try:
            _check(request, part.records, version)
            topic = topic or parts.metadata.topic(
                data.name, data.topic_id if version >= _IDS_SINCE else None
            )
            if topic.name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Cannot append to internal topic {topic.name}",
                )
            partition = parts.replicas.partition(topic, part.index)
            appended = partition.append_produced(
                part.records or b"", acks_all=request.acks == ALL_ACKS
            )
        except KafkaError as error:
            answers.append(_failed(topic if version >= _LEADERS_SINCE else None, part.index, error))
            continue
        asked = _Asked(
            partition, part.index, answers, place, topic if version >= _LEADERS_SINCE else None
        )
        if isinstance(appended, asyncio.Task):
            progress.later.append(_Later(appended, asked))
            answers.append(PartitionResponse(index=part.index))
        else:
            answers.append(_appended(request, asked, appended, progress.uncommitted))
    return answers


def _appended(
    request: ProduceRequest, asked: _Asked, appended: Appended, uncommitted: list[_Uncommitted]
) -> PartitionResponse:
    partition, number, answers, place, topic = asked
    if request.acks == ALL_ACKS and not partition.is_committed(appended.end_offset):
        uncommitted.append(
            _Uncommitted(
                partition,
                appended.end_offset,
                answers,
                place,
                topic.name if topic is not None else "",
            )
        )
    return PartitionResponse(
        index=number,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _check(request: ProduceRequest, records: Buffer | None, version: int) -> None:
    """What depends on the request. Whether the batch itself is sound is the partition's matter."""
    if request.acks not in (ALL_ACKS, LEADER_ACKS, NO_ACKS):
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS,
            f"acks must be -1 (all), 0 or 1, and not {request.acks}",
        )
    if not records:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            (
                "a produce request must hold exactly one record batch for a partition, but this "
                "one "
                "has none"
            ),
        )
    attributes = records[_ATTRIBUTES_AT] if len(records) > _ATTRIBUTES_AT else 0
    if request.transactional_id is not None or attributes & TRANSACTIONAL_BIT:
        message = "there are no transactions on this broker yet: produce without a transactional id"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, message)
    if version < _ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
        message = (
            f"zstd may be used from version {_ZSTD_SINCE} of Produce on, and this request "
            f"has version {version}"
        )
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)


def _failed(topic: TopicImage | None, index: int, error: KafkaError) -> PartitionResponse:
    current = PartitionResponse.CurrentLeader()
    if (
        error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        and topic is not None
        and index in topic.partitions
    ):
        state = topic.partitions[index]
        current = PartitionResponse.CurrentLeader(
            leader_id=state.leader, leader_epoch=state.leader_epoch
        )
    errors: tuple[RecordError, ...] = ()
    if isinstance(error, RecordsRefused):
        errors = tuple(
            RecordError(batch_index=number, batch_index_error_message=error.reason)
            for number in error.numbers
        )
    return PartitionResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=errors,
        error_message=error.message or None,
        current_leader=current,
    )


def _raise_first_error(topics: _Topics) -> None:
    for data, answers in topics:
        for answer in answers:
            if answer.error_code:
                where = f"{data.name or data.topic_id}-{answer.index}"
                raise KafkaError(
                    ErrorCode(answer.error_code),
                    f"produce with acks=0 to {where} failed: {answer.error_message}",
                )


def _when_committed(
    parts: Parts,
    uncommitted: list[_Uncommitted],
    deadline: float,
    respond: Callable[[], ProduceResponse],
) -> asyncio.Future[ProduceResponse]:
    """A future and no task: there are many of these, and each would cost as much as its append."""
    response: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    left = len(uncommitted)

    def settle(one: _Uncommitted, waited: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        error = waited.exception()
        if isinstance(error, KafkaError):
            # Who leads may have changed since the append.
            one.answers[one.place] = _failed(
                parts.metadata.image.topics.get(one.topic), one.answers[one.place].index, error
            )
        if response.done():
            return
        if error is not None and not isinstance(error, KafkaError):
            response.set_exception(error)
        elif left == 0:
            response.set_result(respond())

    for one in uncommitted:
        asyncio.ensure_future(
            one.partition.wait_committed(one.end_offset, deadline)
        ).add_done_callback(partial(settle, one))
    return response


def _response(parts: Parts, topics: _Topics, context: RequestContext) -> ProduceResponse:
    responses = [
        TopicResponse(name=data.name, topic_id=data.topic_id, partition_responses=tuple(answers))
        for data, answers in topics
    ]
    leaders = [
        answer.current_leader.leader_id
        for _data, answers in topics
        for answer in answers
        if answer.error_code
    ]
    endpoints = [
        ProduceResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in (endpoints_of(parts, context, leaders) if leaders else ())
    ]
    return ProduceResponse(responses=tuple(responses), node_endpoints=tuple(endpoints))
