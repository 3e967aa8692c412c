"""Fetch: record batches from the log, unchanged, for consumers and followers.

Behaviour
  A response has up to max_bytes (and never more than 55 MB) of records, and up to
  partition_max_bytes of each partition; the first partition that has records returns at least one
  whole batch. Below min_bytes the response waits up to max_wait_ms, and is completed by the change
  that it waits for. An error is returned immediately; only an unknown topic, which may be created
  soon, waits with the others. Consumers read up to the high watermark, with read_committed up to
  the last stable offset, and get the aborted transactions to skip. Followers read up to the log's
  end, and each fetch offset acknowledges what the follower has. current_leader_epoch fences,
  last_fetched_epoch finds divergence (KIP-595). From v11 on consumers may fetch from a follower;
  if replica.selector.class says so, a consumer with a rack is redirected to the replica in it
  (KIP-392).

  A consumer with a quota consumer_byte_rate gets an empty response if the records would exceed it,
  with the time that it is throttled for. Quotas do not apply to followers.

  A consumer needs READ on its topics. A client that names a replica needs CLUSTER_ACTION on the
  cluster: without it every partition is TOPIC_AUTHORIZATION_FAILED, and no session and no replica
  is touched (CVE-2018-1288).

Version notes
  v7 brings sessions (KIP-227). v13 names topics by id. v15 brings the follower's broker epoch,
  without which its fetch is refused. v16 brings the current leader and its endpoint (KIP-951). v17
  and v18 change what only the quorum uses. Kafka returns zstd batches from v10 on; this broker does
  so in all versions.

Not implemented
  Tiered storage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.config.cluster_settings import REPLICA_SELECTOR_CLASS
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.leaders import endpoints_of
from penstock.limits import ANSWERED_PARTITIONS_A_TURN
from penstock.node.fetch.delayed import FetchResult
from penstock.node.fetch.reader import FetchParams, PartitionRead
from penstock.node.fetch.state import CONSUMER_ID, Key
from penstock.protocol.codec import encode_struct_parts
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.schema import EncodedParts
from penstock.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.handlers.authorization.guard import Guard
    from penstock.node.fetch.fetches import Fetches
    from penstock.node.metadata import MetadataView
    from penstock.security.quotas.client_quotas import ClientQuotas
    from penstock.world import Clock

TopicResponse = FetchResponse.Response
PartitionResponse = TopicResponse.Partition

READ_COMMITTED = 1
# Consumers of earlier versions do not know of preferred replicas: they would stay with a follower
# that lags.
_FETCH_FROM_FOLLOWER_SINCE = 11
_TOPIC_IDS_SINCE = 13
_LEADERS_SINCE = 16
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_NO_DIVERGENCE = PartitionResponse.DivergingEpoch()
_NO_LEADER = PartitionResponse.CurrentLeader()


class Parts(Protocol):
    clock: Clock
    config: NodeConfig
    quotas: ClientQuotas
    metadata: MetadataView
    fetches: Fetches


def handle(
    parts: Parts, request: FetchRequest, context: RequestContext
) -> FetchResponse | Awaitable[FetchResponse]:
    by_id = context.version >= _TOPIC_IDS_SINCE
    params = _params(parts, request, context)
    guard = context.guard
    if (
        guard is not None
        and params.replica_id != CONSUMER_ID
        and not guard.allows_cluster(AclOperation.CLUSTER_ACTION)
    ):
        return _refused_replica(request)
    if params.replica_id != CONSUMER_ID:
        context.connection.is_follower = parts.fetches.is_verified(params)
    else:
        context.connection.is_follower = False
        if parts.quotas.fetch.is_set:
            params = _within_quota(parts, params, context)
    try:
        return parts.fetches.fetch(
            params,
            request.session_id,
            request.session_epoch,
            [
                ((topic.topic_id if by_id else topic.topic, partition.partition), partition)
                for topic in request.topics
                for partition in topic.partitions
            ],
            [
                (topic.topic_id if by_id else topic.topic, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ],
            _Responses(parts, request, context),
            uses_topic_ids=by_id,
        )
    except KafkaError as error:
        parts.fetches.replicas.counts.fetch_errors[error.code] += 1
        return FetchResponse(error_code=error.code)


def _refused_replica(request: FetchRequest) -> FetchResponse:
    if not request.topics:
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return FetchResponse(
        responses=tuple(
            TopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionResponse(
                        partition_index=partition.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        high_watermark=-1,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _params(parts: Parts, request: FetchRequest, context: RequestContext) -> FetchParams:
    state, rack = request.replica_state, request.rack_id
    if rack and parts.config[REPLICA_SELECTOR_CLASS] != _RACK_AWARE:
        rack = ""
    replica_id, broker_epoch = state.replica_id, state.replica_epoch
    if replica_id < 0:  # v14 and before
        replica_id, broker_epoch = request.replica_id, -1
    return FetchParams(
        replica_id,
        broker_epoch,
        request.max_wait_ms / 1000,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level == READ_COMMITTED,
        context.version >= _FETCH_FROM_FOLLOWER_SINCE,
        rack,
        None if context.guard is None or replica_id != CONSUMER_ID else _may_read(context.guard),
    )


def _within_quota(parts: Parts, params: FetchParams, context: RequestContext) -> FetchParams:
    """Return parameters with the quota of the consumer, if it has one. It fetches as many bytes as
    the quota has room for: more would be refused, and a consumer of much more would make no
    progress."""
    quota, monotonic = parts.quotas.fetch, parts.clock.monotonic
    user, client_id = context.principal.name, context.client_id or ""
    room = quota.room(user, client_id, int(monotonic() * 1000))
    if room is None:
        return params
    return params._replace(
        max_bytes=max(1, int(min(params.max_bytes, room))),
        charge=lambda size: quota.admit(user, client_id, size, int(monotonic() * 1000)),
    )


def _may_read(guard: Guard) -> Callable[[str], bool]:
    return lambda name: guard.allows(AclOperation.READ, ResourceType.TOPIC, name)


class _Responses:
    """Makes the response of one request. `_leaders` are those that it names."""

    __slots__ = ("_context", "_leaders", "_names_leaders", "_parts", "_request")

    def __init__(self, parts: Parts, request: FetchRequest, context: RequestContext) -> None:
        self._parts = parts
        self._request = request
        self._context = context
        self._leaders: set[int] = set()
        self._names_leaders = context.version >= _LEADERS_SINCE

    def response(self, result: FetchResult) -> FetchResponse:
        topics: dict[str | UUID, list[PartitionResponse]] = {}
        for (topic, index), read in result.partitions:
            topics.setdefault(topic, []).append(self._partition(index, read))
        return self._response(
            result.session_id,
            tuple(_topic(topic, tuple(partitions)) for topic, partitions in topics.items()),
        )

    def in_slices(
        self, session_id: int, slices: Iterable[Sequence[tuple[Key, PartitionRead]]]
    ) -> Generator[None, None, FetchResponse]:
        """Encode the response of many partitions: first the partitions, then their topics."""
        version = self._context.version
        topics: dict[str | UUID, EncodedParts] = {}
        for some in slices:
            for (topic, index), read in some:
                encoded = topics.get(topic)
                if encoded is None:
                    encoded = topics[topic] = EncodedParts()
                encoded.add(
                    encode_struct_parts(FetchResponse, self._partition(index, read), version)
                )
            yield
        responses = EncodedParts()
        for number, (topic, partitions) in enumerate(topics.items(), 1):
            responses.add(encode_struct_parts(FetchResponse, _topic(topic, partitions), version))
            if number % ANSWERED_PARTITIONS_A_TURN == 0:
                yield
        return self._response(session_id, responses)

    def throttled(self, session_id: int, throttle_ms: int) -> FetchResponse:
        return FetchResponse(session_id=session_id, throttle_time_ms=throttle_ms)

    def _partition(self, index: int, read: PartitionRead) -> PartitionResponse:
        if read.read is not None:
            return _with_records(index, read, self._request)
        if read.error:
            self._parts.fetches.replicas.counts.fetch_errors[read.error] += 1
        if read.leader is not None and self._names_leaders:
            self._leaders.add(read.leader.leader)
        return _without_records(index, read, names_leaders=self._names_leaders)

    def _response(
        self, session_id: int, responses: tuple[TopicResponse, ...] | EncodedParts
    ) -> FetchResponse:
        return FetchResponse(
            session_id=session_id,
            responses=responses,  # type: ignore[arg-type]  # see may_be_encoded
            node_endpoints=tuple(
                FetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in endpoints_of(
                    self._parts, self._context, self._leaders
                )
            )
            if self._leaders
            else (),
        )


def _topic(
    topic: str | UUID, partitions: tuple[PartitionResponse, ...] | EncodedParts
) -> TopicResponse:
    if isinstance(topic, UUID):
        return TopicResponse(topic_id=topic, partitions=partitions)  # type: ignore[arg-type]
    return TopicResponse(topic=topic, partitions=partitions)  # type: ignore[arg-type]


def _with_records(index: int, result: PartitionRead, request: FetchRequest) -> PartitionResponse:
    read = result.read
    assert read is not None
    aborted = None
    if request.isolation_level == READ_COMMITTED:
        aborted = tuple(
            PartitionResponse.AbortedTransaction(producer_id=producer_id, first_offset=offset)
            for producer_id, offset in read.aborted
        )
    return PartitionResponse(
        partition_index=index,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=aborted,
        preferred_read_replica=result.preferred_replica,
        records=b"" if read.range is None else read.range,
    )


def _without_records(
    index: int, result: PartitionRead, *, names_leaders: bool
) -> PartitionResponse:
    diverging, leader = _NO_DIVERGENCE, _NO_LEADER
    if result.diverging is not None:
        epoch, end_offset = result.diverging
        diverging = PartitionResponse.DivergingEpoch(epoch=epoch, end_offset=end_offset)
    if result.leader is not None and names_leaders:
        leader = PartitionResponse.CurrentLeader(
            leader_id=result.leader.leader, leader_epoch=result.leader.leader_epoch
        )
    return PartitionResponse(
        partition_index=index,
        error_code=result.error,
        high_watermark=-1,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None,
        diverging_epoch=diverging,
        current_leader=leader,
        records=b"",
    )
