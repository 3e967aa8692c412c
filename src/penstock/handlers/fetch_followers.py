"""Fetch, as a follower asks: up to the log's end, and each fetch acknowledges what the last one
brought.

A session's partitions are watched for its life, so that a fetch costs what changed. One that waits
is a future and a timer, no task: it is looked at once a turn of the loop, after what it waits for
has moved. Who poses as a replica without being one gets an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.handlers.fetch_interest import UNTOLD, Interest, Key, Wanted
from penstock.handlers.fetch_sessions import NO_SESSION, Session
from penstock.limits import MAX_FETCH_BYTES, STALE_WATERMARK_S
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Partition, ReadResult
    from penstock.node.replication.replicas import Replicas
    from penstock.node.supervisor import Supervisor
    from penstock.world import Offload

_UNDER_WAY = -1

TopicAnswer = FetchResponse.Response
Answer = TopicAnswer.Partition


class Parts(Protocol):
    offload: Offload
    supervisor: Supervisor
    metadata: MetadataView
    replicas: Replicas


def replica_of(request: FetchRequest) -> tuple[int, int]:
    """Which broker asks, in which epoch of its; -1 is a consumer."""
    state = request.replica_state
    return (
        (state.replica_id, state.replica_epoch)
        if state.replica_id >= 0
        else (request.replica_id, -1)
    )


class FollowerInterest(Interest):
    """What one follower fetches from this node."""

    def __init__(self, uses_ids: bool, replica_id: int) -> None:
        super().__init__(uses_ids, replica_id)
        self.waiting: FollowerFetch | None = None
        # The offsets for which what is needed was fetched from the disk, or is being fetched.
        self.warming: dict[Key, int] = {}

    def mark(self, key: Key) -> None:
        if key in self.partitions:
            self.due[key] = None
            if self.waiting is not None:
                self.waiting.wake()

    def _listen(self, partition: Partition, notice: partial[None]) -> None:
        partition.on_growth(notice)


class _Found(NamedTuple):
    read: ReadResult | None
    error: ErrorCode = ErrorCode.NONE
    diverging: tuple[int, int] | None = None
    log_start_offset: int = -1


class FollowerFetch:
    """One request, from what it acknowledges to its response. Only the partitions that it names
    acknowledge anything."""

    def __init__(
        self,
        parts: Parts,
        request: FetchRequest,
        interest: FollowerInterest,
        session: Session | None,
        *,
        incremental: bool,
    ) -> None:
        self._parts = parts
        self._interest = interest
        self._session = session
        self._incremental = incremental
        self._replica_id, self._broker_epoch = replica_of(request)
        self._max_bytes = min(max(request.max_bytes, 0), MAX_FETCH_BYTES)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_s = request.max_wait_ms / 1000
        self._found: dict[Key, _Found] = {}
        self._size = 0
        self._urgent = False
        self._stale = False
        self._woken = False
        self._future: asyncio.Future[FetchResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> FetchResponse | asyncio.Future[FetchResponse]:
        if self._interest.waiting is not None:
            self._interest.waiting.answer()
        self._read_due()
        if self._enough or self._max_wait_s <= 0:
            return self._finish()
        return self._wait()

    # Waiting

    def _wait(self) -> asyncio.Future[FetchResponse]:
        loop = asyncio.get_running_loop()
        self._interest.waiting = self
        self._future = loop.create_future()
        self._future.add_done_callback(self._ended)
        self._timer = loop.call_later(
            min(self._max_wait_s, STALE_WATERMARK_S) if self._stale else self._max_wait_s,
            self.answer,
        )
        return self._future

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._woken = False
        if self._future is None or self._future.done():
            return
        was_stale = self._stale
        self._read_due()
        if self._enough:
            self.answer()
        elif self._stale and not was_stale:
            # News of the watermark alone may wait a moment for records to go with.
            loop = asyncio.get_running_loop()
            assert self._timer is not None
            at = min(loop.time() + STALE_WATERMARK_S, self._timer.when())
            self._timer.cancel()
            self._timer = loop.call_at(at, self.answer)

    def answer(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(self._finish())

    def _ended(self, future: asyncio.Future[FetchResponse]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._interest.waiting is self:
            self._interest.waiting = None
        if self._session is None:
            self._interest.close()
        elif future.cancelled():
            self._interest.due.update(
                (key, None) for key in self._found if key in self._interest.partitions
            )

    # Reading

    @property
    def _enough(self) -> bool:
        return self._urgent or self._size >= self._min_bytes

    def _read_due(self) -> None:
        """What does not fit stays due, before what comes later; but all that the request names is
        acknowledged."""
        interest = self._interest
        for key in list(interest.due):
            wanted = interest.partitions.get(key)
            if (
                wanted is not None
                and self._size >= self._max_bytes > 0
                and wanted.acknowledged is wanted.asked
            ):
                continue
            del interest.due[key]
            if wanted is None:
                continue
            previous = self._found.pop(key, None)
            if previous is not None:
                self._size -= _size(previous)
            found = self._found[key] = self._find(key, wanted)
            self._note(found, wanted)

    def _note(self, found: _Found, wanted: Wanted) -> None:
        self._size += _size(found)
        if found.read is None:
            self._urgent = True
        elif (
            found.read.high_watermark != wanted.told_high_watermark
            or found.read.log_start_offset != wanted.told_log_start
        ):
            self._stale = True

    def _find(self, key: Key, wanted: Wanted) -> _Found:
        asked = wanted.asked
        partition = wanted.watched() if wanted.watched is not None else None
        try:
            partition = partition or self._partition(key)
            partition.check_follower(
                asked.current_leader_epoch, self._replica_id, self._broker_epoch
            )
            if wanted.acknowledged is not asked:
                wanted.acknowledged = asked
                diverging = partition.follower_fetched(
                    self._replica_id,
                    self._broker_epoch,
                    asked.fetch_offset,
                    asked.last_fetched_epoch,
                    asked.log_start_offset,
                )
                if diverging is not None:
                    self._interest.unwatch(key)
                    return _Found(None, diverging=diverging)
            allowed = max(min(asked.partition_max_bytes, self._max_bytes - self._size), 0)
            read = self._read(key, partition, asked.fetch_offset, allowed)
        except KafkaError as error:
            # Not looked at again until it is named again, and then from the beginning.
            self._interest.unwatch(key)
            return _Found(
                None,
                error.code,
                log_start_offset=-1 if partition is None else partition.log_start_offset,
            )
        if wanted.watched is None:
            self._interest.watch(key, partition)
        if read.range is None and asked.fetch_offset < partition.log_end_offset:
            self._interest.due[key] = None
        return _Found(read)

    def _read(self, key: Key, partition: Partition, offset: int, allowed: int) -> ReadResult:
        """Nothing yet where it must be fetched from the disk before, which is done once for what is
        asked for."""
        warming = self._interest.warming
        if warming.get(key) == _UNDER_WAY:
            return partition.look()
        try:
            at_once = warming.pop(key, None) != offset
            return partition.read_for_follower(
                offset, allowed, at_least_one=self._size == 0, at_once=at_once
            )
        except NotInMemory as missing:
            warming[key] = _UNDER_WAY
            self._parts.supervisor.spawn(self._warm(key, offset, missing.warm))
            return partition.look()

    async def _warm(self, key: Key, offset: int, warm: Callable[[], None]) -> None:
        await self._parts.offload.thread(warm)
        self._interest.warming[key] = offset
        self._interest.mark(key)

    def _partition(self, key: Key) -> Partition:
        topic, index = key
        return self._parts.replicas.partition(
            self._parts.metadata.topic(topic)
            if isinstance(topic, str)
            else self._parts.metadata.topic("", topic),
            index,
        )

    # Answering

    def _finish(self) -> FetchResponse:
        topics: dict[str | UUID, list[Answer]] = {}
        for key, found in self._found.items():
            wanted = self._interest.partitions.get(key)
            if wanted is None or (self._incremental and not _is_news(found, wanted)):
                continue
            wanted.told_high_watermark = UNTOLD if found.read is None else found.read.high_watermark
            wanted.told_log_start = UNTOLD if found.read is None else found.read.log_start_offset
            topics.setdefault(key[0], []).append(_answer(key[1], found))
        responses = tuple(
            TopicAnswer(topic_id=topic, partitions=tuple(answers))
            if isinstance(topic, UUID)
            else TopicAnswer(topic=topic, partitions=tuple(answers))
            for topic, answers in topics.items()
        )
        return FetchResponse(
            session_id=NO_SESSION if self._session is None else self._session.id,
            responses=responses,
        )


def _size(found: _Found) -> int:
    return len(found.read.range) if found.read is not None and found.read.range is not None else 0


def _is_news(found: _Found, wanted: Wanted) -> bool:
    read = found.read
    if read is None or read.range is not None:
        return True
    return (
        read.high_watermark != wanted.told_high_watermark
        or read.log_start_offset != wanted.told_log_start
    )


def _answer(index: int, found: _Found) -> Answer:
    read = found.read
    if read is not None:
        return Answer(
            partition_index=index,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=None,
            records=b"" if read.range is None else read.range,
        )
    diverging = Answer.DivergingEpoch()
    if found.diverging is not None:
        diverging = Answer.DivergingEpoch(epoch=found.diverging[0], end_offset=found.diverging[1])
    return Answer(
        partition_index=index,
        error_code=found.error,
        high_watermark=-1,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        diverging_epoch=diverging,
        records=b"",
    )
