"""Fetch: record batches as they lie in the log, for consumers.

Behaviour
  Partitions are read in turn, each up to partition_max_bytes, together up to max_bytes (and never
  more than 55 MB); the first one that has anything gives at least one whole batch. Below min_bytes
  the answer waits, up to max_wait_ms, woken by what changes: nothing is polled. An error that the
  fetcher must know is answered at once; a topic that is not there may yet come, and waits with the
  others. Consumers see up to the high watermark, with read_committed up to the last stable offset,
  with the aborted transactions to leave out. current_leader_epoch fences; last_fetched_epoch finds
  divergence. Followers see up to the log's end (`fetch_followers`). From v11 on a consumer may read
  from a follower, and one with a rack is sent to the one in it if replica.selector.class says so
  (KIP-392).

Version notes
  v7 brings sessions (`fetch_sessions`): an incremental request names what changed, and the answer
  leaves out what did not. v13 names topics by id, v16 the current leader and its address. zstd
  needs v10 in Kafka; here batches go out as they are. v15 brings the follower's broker epoch,
  without which its fetch is refused; v17 and v18 change what only the quorum sends.

Not implemented
  Tiered storage, snapshots, throttling.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.fetch_followers import FollowerFetch, FollowerInterest, replica_of
from penstock.handlers.fetch_gathering import READ_COMMITTED, Found, Gathering
from penstock.handlers.fetch_interest import UNTOLD, Interest, Key, Wanted
from penstock.handlers.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessions,
    Session,
)
from penstock.handlers.leaders import endpoints_of
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.handlers.fetch_sessions import FetchSessions
    from penstock.node.metadata import MetadataView
    from penstock.node.replication.replicas import Replicas
    from penstock.node.supervisor import Supervisor
    from penstock.world import Clock, Offload

TopicAnswer = FetchResponse.Response
Answer = TopicAnswer.Partition

_IDS_SINCE = 13
_LEADERS_SINCE = 16


class Parts(Protocol):
    clock: Clock
    offload: Offload
    config: NodeConfig
    supervisor: Supervisor
    metadata: MetadataView
    replicas: Replicas
    fetches: FetchSessions


def handle(
    parts: Parts, request: FetchRequest, context: RequestContext
) -> FetchResponse | Awaitable[FetchResponse]:
    try:
        interest, session = _begin(parts.fetches, request, context, parts.clock.monotonic())
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
    if isinstance(interest, FollowerInterest):
        return FollowerFetch(parts, request, interest, session, incremental=incremental).begin()
    fetch = _Fetch(parts, context, request, interest, session, incremental=incremental)
    gathering = fetch.gathering
    some_left = gathering.read_due()
    if not some_left and (gathering.enough or request.max_wait_ms <= 0):
        return fetch.finish()
    return fetch.wait_and_finish(parts.clock.monotonic() + request.max_wait_ms / 1000)


def _begin(
    sessions: FetchSessions, request: FetchRequest, context: RequestContext, now: float
) -> tuple[Interest, Session | None]:
    uses_ids = context.version >= _IDS_SINCE
    replica_id, _epoch = replica_of(request)
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(request.session_id)
        interest = Interest(uses_ids) if replica_id < 0 else FollowerInterest(uses_ids, replica_id)
        _update(interest, request)
        return interest, sessions.open(
            interest, now
        ) if request.session_epoch == INITIAL_EPOCH and interest.partitions else None
    session = sessions.resume(request.session_id, request.session_epoch, uses_ids, now, replica_id)
    _update(session.interest, request)
    if not session.interest.partitions:
        sessions.close(session.id)
        return session.interest, None
    sessions.resized(session)
    return session.interest, session


def _update(interest: Interest, request: FetchRequest) -> None:
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            interest.forget((forgotten.topic_id if interest.uses_ids else forgotten.topic, index))
    for topic in request.topics:
        for asked in topic.partitions:
            interest.want(
                (topic.topic_id if interest.uses_ids else topic.topic, asked.partition), asked
            )


class _Fetch:
    """One request, from its partitions to its response."""

    def __init__(
        self,
        parts: Parts,
        context: RequestContext,
        request: FetchRequest,
        interest: Interest,
        session: Session | None,
        *,
        incremental: bool,
    ) -> None:
        self.gathering = Gathering(parts, interest, request, context.version)
        self._parts = parts
        self._context = context
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._interest = interest
        self._session = session
        self._incremental = incremental

    async def wait_and_finish(self, deadline: float) -> FetchResponse:
        answered = False
        try:
            await self.gathering.wait(deadline)
            response = self.finish()
            answered = True
            return response
        finally:
            if self._session is None:
                self._interest.close()
            elif not answered:
                self.gathering.restore()

    def finish(self) -> FetchResponse:
        topics: dict[str | UUID, list[Answer]] = {}
        leaders = set()
        for key, found in self.gathering.found.items():
            wanted = self._interest.partitions.get(key)
            if wanted is None or (self._incremental and not _is_news(found, wanted)):
                continue
            _note(found, wanted)
            topics.setdefault(key[0], []).append(self._answer(key, found))
            if found.leader is not None and self._context.version >= _LEADERS_SINCE:
                leaders.add(found.leader.leader)
        if self._session is not None:
            self.gathering.settle()
        responses = tuple(
            TopicAnswer(topic_id=topic, partitions=tuple(answers))
            if isinstance(topic, UUID)
            else TopicAnswer(topic=topic, partitions=tuple(answers))
            for topic, answers in topics.items()
        )
        endpoints = tuple(
            FetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in endpoints_of(self._parts, self._context, leaders)
        )
        session_id = NO_SESSION if self._session is None else self._session.id
        return FetchResponse(session_id=session_id, responses=responses, node_endpoints=endpoints)

    def _answer(self, key: Key, found: Found) -> Answer:
        if found.read is None:
            return _without_records(key[1], found, self._context.version)
        read = found.read
        aborted = None
        if self._committed_only:
            aborted = tuple(
                Answer.AbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first in read.aborted
            )
        return Answer(
            partition_index=key[1],
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=found.preferred_replica,
            records=b"" if read.range is None else read.range,
        )


def _is_news(found: Found, wanted: Wanted) -> bool:
    read = found.read
    if read is None or read.range is not None:
        return True
    return (
        read.high_watermark != wanted.told_high_watermark
        or read.log_start_offset != wanted.told_log_start
    )


def _note(found: Found, wanted: Wanted) -> None:
    """After an error whatever comes next is news."""
    wanted.told_high_watermark = UNTOLD if found.read is None else found.read.high_watermark
    wanted.told_log_start = UNTOLD if found.read is None else found.read.log_start_offset


def _without_records(index: int, found: Found, version: int) -> Answer:
    diverging, leader = Answer.DivergingEpoch(), Answer.CurrentLeader()
    if found.diverging is not None:
        diverging = Answer.DivergingEpoch(epoch=found.diverging[0], end_offset=found.diverging[1])
    if found.leader is not None and version >= _LEADERS_SINCE:
        leader = Answer.CurrentLeader(
            leader_id=found.leader.leader, leader_epoch=found.leader.leader_epoch
        )
    code = ErrorCode.NONE if found.diverging is not None else found.error
    return Answer(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        diverging_epoch=diverging,
        current_leader=leader,
        records=b"",
    )
