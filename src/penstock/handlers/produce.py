"""Produce: appends record batches to partitions, without reading the records.

Behaviour
  Each partition has its own result. acks=1 is answered after the append, acks=all (-1) when the
  batch is committed or the timeout has passed (REQUEST_TIMED_OUT: it may still be committed later);
  acks other than these and 0 are INVALID_REQUIRED_ACKS, and nothing is appended. acks=0 has no
  response; if a partition failed, the others are still appended and KafkaError is raised. The
  server then closes the connection, so that the producer notices. A duplicate of an idempotent
  producer gets the offset of the first append. If another broker leads the partition, the response
  names it. Only brokers write to Kafka's internal topics: INVALID_TOPIC_EXCEPTION for other
  clients, except for the client id __admin_client.

  The batches of compacted topics, and of topics with their own compression.type, are opened. If a
  record for a compacted topic has no key, the result is INVALID_RECORD, and record_errors name the
  record. Large batches are opened in a child process: batches of a partition keep their order, and
  the response leaves when all are appended.

  Transactional batches need a transactional id (TRANSACTIONAL_ID_AUTHORIZATION_FAILED without) and
  the same producer id and epoch (INVALID_PRODUCER_ID_MAPPING); otherwise nothing of the request is
  appended. The first batch of a transaction in a partition waits until the transaction coordinator
  has confirmed it (KIP-890), unless transaction.partition.verification.enable is off. Batches of
  a producer keep their order meanwhile, and others do not wait. If the coordinator cannot answer,
  the error is NOT_ENOUGH_REPLICAS: all clients retry it, and without new metadata.

Version notes
  zstd from v7 on, before UNSUPPORTED_COMPRESSION_TYPE. v8 brings error messages. v10 brings the
  current leader and its endpoint (KIP-951). v11 brings TRANSACTION_ABORTABLE, before
  INVALID_TXN_STATE. From v12 on the coordinator adds the partition to the transaction; before, the
  client has added it. v13 names topics by id. v0 to v2 are advertised for old versions of
  librdkafka, and not served.

Not implemented
  -
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.leaders import endpoints_of
from penstock.handlers.topic_view import INTERNAL_TOPICS
from penstock.handlers.transactional_produce import (
    append_transactional,
    attributes_of,
    for_producer,
    has_transaction,
    refusal_of,
)
from penstock.ids import Buffer
from penstock.metadata.image import TopicImage
from penstock.node.delayed import DelayedResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.batch import CODEC_MASK, TRANSACTIONAL_BIT
from penstock.records.compression import Codec
from penstock.records.rewriting import RecordsRefused

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Appended, Partition
    from penstock.node.replication.replicas import Replicas
    from penstock.node.shards.verification import TxnVerifier
    from penstock.world import Clock

TopicResponse = ProduceResponse.Response
PartitionResponse = TopicResponse.PartitionResponse
RecordError = PartitionResponse.RecordError

NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
_ADMIN_CLIENT = "__admin_client"
_ZSTD_SINCE = 7
_LEADERS_SINCE = 10
_TOPIC_IDS_SINCE = 13
_NO_LEADER = PartitionResponse.CurrentLeader()


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    replicas: Replicas
    verifier: TxnVerifier


class _Slot(NamedTuple):
    """The place of a partition's response that is not final yet."""

    partition: Partition
    responses: list[PartitionResponse]
    position: int
    topic: TopicImage

    def set(self, response: PartitionResponse) -> None:
        self.responses[self.position] = response


@dataclass(slots=True)
class _ProduceState:
    """A request in progress: the responses of its topics, and the appends that it waits for."""

    parts: Parts
    request: ProduceRequest
    context: RequestContext
    deadline: float
    responses: list[list[PartitionResponse]] = field(default_factory=list)
    is_transactional: bool = False
    # Appends whose batches are opened in the child process, or wait for their verification.
    pending: list[tuple[_Slot, asyncio.Task[Appended]]] = field(default_factory=list)
    # End offsets that are not committed yet, with acks=all.
    uncommitted: list[tuple[_Slot, int]] = field(default_factory=list)
    has_errors: bool = False

    def failed(self, topic: TopicImage | None, index: int, error: KafkaError) -> PartitionResponse:
        self.has_errors = True
        return _failed(topic, index, error, self.context.version)


class DelayedProduce(DelayedResponse[ProduceResponse]):
    """The response to acks=all while the high watermark has not reached its appends. Not a task:
    that would cost as much as the append."""

    __slots__ = ("_remaining", "_state")

    def __init__(self, state: _ProduceState) -> None:
        super().__init__()
        self._state = state
        self._remaining = len(state.uncommitted)
        for slot, end_offset in state.uncommitted:
            slot.partition.on_committed(end_offset, state.deadline, partial(self._ended, slot))

    def _ended(self, slot: _Slot, error: KafkaError | None) -> None:
        state = self._state
        if error is not None:
            # The leader may have changed since the append.
            topic = state.parts.metadata.image.topics.get(slot.topic.name)
            index = slot.responses[slot.position].index
            slot.set(state.failed(topic, index, error))
        self._remaining -= 1
        if self._remaining == 0:
            self.complete(_response(state))


def handle(
    parts: Parts, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    deadline = parts.clock.monotonic() + request.timeout_ms / 1000
    state = _ProduceState(parts, request, context, deadline)
    if has_transaction(request):
        state.is_transactional = True
        refusal = refusal_of(request)
        if refusal is not None:
            state.responses = [
                [state.failed(None, data.index, refusal) for data in topic.partition_data]
                for topic in request.topic_data
            ]
            return _respond(state)
    for topic in request.topic_data:
        state.responses.append(_append_topic(state, topic))
    if state.pending:
        return _after_pending(state)
    return _respond(state)


def _respond(state: _ProduceState) -> ProduceResponse | DelayedProduce | None:
    if state.request.acks == NO_ACKS:
        _raise_first_error(state)
        return None
    return DelayedProduce(state) if state.uncommitted else _response(state)


async def _after_pending(state: _ProduceState) -> ProduceResponse | None:
    """Wait until the pending batches are opened or verified, and appended."""
    try:
        await asyncio.wait([task for _slot, task in state.pending])
    except asyncio.CancelledError:
        for _slot, task in state.pending:
            task.cancel()
        raise
    # The timeout is for the commit, as in Kafka.
    state.deadline = state.parts.clock.monotonic() + state.request.timeout_ms / 1000
    for slot, task in state.pending:
        index = slot.responses[slot.position].index
        try:
            appended = task.result()
        except KafkaError as error:
            refusal = for_producer(error, state.context.version)
            slot.set(state.failed(slot.topic, index, refusal))
            continue
        if state.request.acks == ALL_ACKS and not slot.partition.is_committed(appended.end_offset):
            state.uncommitted.append((slot, appended.end_offset))
        slot.set(_appended(slot.partition, index, appended))
    response = _respond(state)
    return await response if isinstance(response, DelayedProduce) else response


def _append_topic(state: _ProduceState, data: ProduceRequest.TopicData) -> list[PartitionResponse]:
    parts, request, version = state.parts, state.request, state.context.version
    acks_all = request.acks == ALL_ACKS
    responses: list[PartitionResponse] = []
    topic: TopicImage | None = None
    for position, batch in enumerate(data.partition_data):
        try:
            _check(request, batch.records, version)
            if topic is None:
                topic = parts.metadata.topic(
                    data.name, data.topic_id if version >= _TOPIC_IDS_SINCE else None
                )
            if topic.name in INTERNAL_TOPICS and state.context.client_id != _ADMIN_CLIENT:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Cannot append to internal topic {topic.name}",
                )
            partition = parts.replicas.partition(topic, batch.index)
            if state.is_transactional and attributes_of(batch.records) & TRANSACTIONAL_BIT:
                appended = append_transactional(
                    parts, request, version, partition, batch.records or b""
                )
            else:
                appended = partition.append_produced(batch.records or b"", acks_all=acks_all)
        except KafkaError as error:
            responses.append(state.failed(topic, batch.index, error))
            continue
        if isinstance(appended, asyncio.Task):
            state.pending.append((_Slot(partition, responses, position, topic), appended))
            responses.append(PartitionResponse(index=batch.index))
            continue
        if acks_all and not partition.is_committed(appended.end_offset):
            slot = _Slot(partition, responses, position, topic)
            state.uncommitted.append((slot, appended.end_offset))
        responses.append(_appended(partition, batch.index, appended))
    return responses


def _appended(partition: Partition, index: int, appended: Appended) -> PartitionResponse:
    return PartitionResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _check(request: ProduceRequest, records: Buffer | None, version: int) -> None:
    """Check what depends on the request. The partition checks the batch."""
    if request.acks not in (ALL_ACKS, LEADER_ACKS, NO_ACKS):
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS,
            f"acks must be -1 (all), 0 or 1, not {request.acks}",
        )
    if not records:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "a produce request must have exactly one record batch per partition; this one has none",
        )
    if version < _ZSTD_SINCE and attributes_of(records) & CODEC_MASK == Codec.ZSTD:
        message = f"zstd needs version {_ZSTD_SINCE} of Produce; this request has version {version}"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)


def _failed(
    topic: TopicImage | None, index: int, error: KafkaError, version: int
) -> PartitionResponse:
    leader = _NO_LEADER
    if (
        error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        and version >= _LEADERS_SINCE
        and topic is not None
        and index in topic.partitions
    ):
        state = topic.partitions[index]
        leader = PartitionResponse.CurrentLeader(
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
        current_leader=leader,
    )


def _raise_first_error(state: _ProduceState) -> None:
    for data, responses in zip(state.request.topic_data, state.responses, strict=True):
        for response in responses:
            if response.error_code:
                raise KafkaError(
                    ErrorCode(response.error_code),
                    f"produce with acks=0 to {data.name or data.topic_id}-{response.index} failed: "
                    f"{response.error_message}",
                )


def _response(state: _ProduceState) -> ProduceResponse:
    leaders: list[int] = []
    if state.has_errors:
        errors = state.parts.replicas.counts.produce_errors
        for responses in state.responses:
            for response in responses:
                if response.error_code:
                    errors[response.error_code] += 1
                    leaders.append(response.current_leader.leader_id)
    return ProduceResponse(
        responses=tuple(
            [
                TopicResponse(
                    name=data.name, topic_id=data.topic_id, partition_responses=tuple(responses)
                )
                for data, responses in zip(state.request.topic_data, state.responses, strict=True)
            ]
        ),
        node_endpoints=tuple(
            ProduceResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in endpoints_of(state.parts, state.context, leaders)
        )
        if leaders
        else (),
    )
