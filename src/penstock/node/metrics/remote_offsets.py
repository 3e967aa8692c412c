"""Ends and ages of records of partitions that have no in-sync replica on this broker.

The lag of a group is computed by its coordinator, which need not have a replica of the partitions
that the group reads. At each scrape it asks their leaders for the end offsets, with ListOffsets.
The times at which the end of a log passed an offset tell about how old the record at that offset
is. The age of a record that is older than the first scrape is in its timestamp: one fetch reads the
batch from the leader, once for each committed offset. A fetch also tells markers of transactions,
which are no records, where a group stays at an offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.client.connection import Connection, open_connection
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import NO_TIMESTAMP, Buffer, TopicPartition
from penstock.limits import (
    SCRAPE_REMOTE_S,
    SCRAPED_MARKERS,
    SCRAPED_PARTITIONS_PER_STEP,
    SCRAPED_REMOTE_PARTITIONS,
    SCRAPED_REMOTE_RECORDS,
)
from penstock.metadata.image import NO_LEADER
from penstock.metrics.turn import Turn
from penstock.node.metadata import MetadataView
from penstock.node.metrics.end_offsets import EndOffsets
from penstock.records.batch import MAGIC, BatchHeader, read_header
from penstock.world import World

if TYPE_CHECKING:
    from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
    from penstock.protocol.messages.list_offsets import ListOffsetsRequest

logger = logging.getLogger(__name__)

_LATEST, _EARLIEST = -1, -2
_CONSUMER = -1
# The last version that has the names of topics.
_FETCH_VERSION = 12
# A leader that must read the batch from its disk responds when it has.
_FETCH_WAIT_MS = 200

# A partition and a committed offset of it.
_Record = tuple[TopicPartition, int]


class _First(NamedTuple):
    """The first record after a committed offset. Between the committed offset and `offset` there
    are only markers. `appended_ms` is None if it is not known, -1 if the record has no timestamp.
    `is_read` is True if it is known that there is no marker at the offset."""

    offset: int
    appended_ms: int | None
    is_read: bool


class _Question(NamedTuple):
    """A ListOffsets request, and its partitions in their order."""

    request: ListOffsetsRequest
    names: list[TopicPartition]


class RemoteOffsets:
    def __init__(self, world: World, node_id: int, metadata: MetadataView) -> None:
        self._world = world
        self._node_id = node_id
        self._metadata = metadata
        self._connections: dict[int, Connection] = {}
        self._ends: dict[TopicPartition, EndOffsets] = {}
        # The times are estimated when records have just been appended, or read from leaders.
        self._firsts: dict[_Record, _First] = {}
        # How many timestamps were asked for: the next scrape begins with others.
        self._asked = 0
        # What the last scrape has asked leaders. The next one asks the same, unless the partitions
        # or the topics of the cluster have changed.
        self._names: list[TopicPartition] = []
        self._topics: object = None
        self._questions: dict[int, list[_Question]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def refresh(
        self, wanted: Mapping[TopicPartition, Sequence[int]], turn: Turn
    ) -> dict[TopicPartition, int]:
        """Return the high watermarks of partitions, without those whose leader is not known or does
        not answer in time. `wanted` has the committed offsets of each. Others are forgotten."""
        deadline = asyncio.get_running_loop().time() + SCRAPE_REMOTE_S
        names, topics = list(wanted), self._metadata.image.topics
        if topics is not self._topics or names != self._names:
            self._questions = await self._prepare(names, turn)
            self._names, self._topics = names, topics
        found: dict[TopicPartition, int] = {}
        await asyncio.gather(
            *(
                self._ask_ends(leader, questions, found, deadline, turn)
                for leader, questions in self._questions.items()
            )
        )
        unread = await self._remember(found, wanted, turn)
        if unread:
            await self._read(unread, deadline)
        return found

    def age_s(self, name: TopicPartition, offset: int) -> float | None:
        """Return the age of the first record that is not committed, in seconds. If the record is
        older than the first scrape, and its timestamp is not read yet, it is at least that old. 0
        if only markers follow."""
        first, ends = self._firsts.get((name, offset)), self._ends.get(name)
        if first is not None and ends is not None and first.offset >= ends.last:
            return 0.0
        appended_ms = None if first is None else first.appended_ms
        if appended_ms is None and ends is not None:
            appended_ms = ends.since_ms
        if appended_ms is None or appended_ms < 0:
            return None
        return max(0, self._world.clock.now_ms() - appended_ms) / 1000

    async def _remember(
        self,
        found: Mapping[TopicPartition, int],
        wanted: Mapping[TopicPartition, Sequence[int]],
        turn: Turn,
    ) -> list[_Record]:
        """Remember the end offsets of this scrape, and when the records at committed offsets were
        appended. Return the records to read: the end offsets do not tell their time, or a former
        scrape has seen the committed offset, at which there may be a marker."""
        firsts, self._firsts = self._firsts, {}
        unread: list[_Record] = []
        now_ms = self._world.clock.now_ms()
        for number, (name, offsets) in enumerate(wanted.items(), 1):
            end, ends, is_same = found.get(name), self._ends.get(name), True
            if end is not None:
                if ends is None:
                    ends = self._ends[name] = EndOffsets()
                is_same = ends.last <= end
                ends.add(end, now_ms)
                ends.forget_before(min(offsets))
            for offset in set(offsets):
                if end is not None and offset >= end:
                    continue
                record = name, offset
                before = firsts.get(record) if is_same else None
                first = _estimated(before or _First(offset, None, False), ends)
                self._firsts[record] = first
                is_due = first.appended_ms is None or before is not None
                if end is not None and first.offset < end and not first.is_read and is_due:
                    unread.append(record)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        return unread

    def _leader_of(self, name: TopicPartition) -> int | None:
        topic = self._metadata.image.topics.get(name.topic)
        state = None if topic is None else topic.partitions.get(name.partition)
        if state is None or state.leader in (NO_LEADER, self._node_id):
            return None
        return state.leader

    # End offsets

    async def _prepare(self, names: list[TopicPartition], turn: Turn) -> dict[int, list[_Question]]:
        """Return the questions for each leader. The ends of other partitions are forgotten."""
        remembered, self._ends = self._ends, {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for number, name in enumerate(names, 1):
            if (ends := remembered.get(name)) is not None:
                self._ends[name] = ends
            if (leader := self._leader_of(name)) is not None:
                by_leader.setdefault(leader, []).append(name)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        questions: dict[int, list[_Question]] = {}
        for leader, led in by_leader.items():
            remaining, of_leader = iter(led), questions.setdefault(leader, [])
            while some := list(islice(remaining, SCRAPED_REMOTE_PARTITIONS)):
                of_leader.append(_question(some, _LATEST))
                await turn.pause()
        return questions

    async def _ask_ends(
        self,
        leader: int,
        questions: list[_Question],
        found: dict[TopicPartition, int],
        deadline: float,
        turn: Turn,
    ) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                for question in questions:
                    found |= await self._list_offsets(leader, question)
                    await turn.pause()
        except (KafkaError, ProtocolError, OSError, TimeoutError) as error:
            count = sum(len(question.names) for question in questions)
            logger.info("no end offsets of %d partitions of broker %d: %r", count, leader, error)

    async def _list_offsets(self, leader: int, question: _Question) -> dict[TopicPartition, int]:
        from penstock.protocol.messages.list_offsets import ListOffsetsResponse

        connection = await self._connection(leader)
        response = await connection.call(question.request, ListOffsetsResponse)
        answered = ((topic.name, each) for topic in response.topics for each in topic.partitions)
        found: dict[TopicPartition, int] = {}
        for name, (topic, each) in zip(question.names, answered, strict=False):
            # Leaders answer in the order of the request.
            if name[1] != each.partition_index or name[0] != topic:
                name = TopicPartition(topic, each.partition_index)
            if not each.error_code and each.offset >= 0:
                found[name] = each.offset
        return found

    # Timestamps

    async def _read(self, unread: list[_Record], deadline: float) -> None:
        """Read the batches of some records. The next scrape begins after them, so that records
        whose leaders do not answer do not keep it from the others."""
        start = self._asked % len(unread)
        some = (unread[start:] + unread[:start])[:SCRAPED_REMOTE_RECORDS]
        self._asked += len(some)
        by_leader: dict[int, list[_Record]] = {}
        for name, offset in some:
            if (leader := self._leader_of(name)) is not None:
                by_leader.setdefault(leader, []).append((name, offset))
        await asyncio.gather(
            *(self._read_of(leader, each, deadline) for leader, each in by_leader.items())
        )

    async def _read_of(self, leader: int, records: list[_Record], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                for record in records:
                    await self._read_first(leader, record)
        except (KafkaError, ProtocolError, OSError, TimeoutError) as error:
            logger.info(
                "no timestamps of %d partitions of broker %d: %r", len(records), leader, error
            )

    async def _read_first(self, leader: int, record: _Record) -> None:
        """Read the first record after a committed offset, and skip markers. The estimate of when it
        was appended is kept."""
        first, name, end = self._firsts[record], record[0], self._ends[record[0]].last
        for _ in range(SCRAPED_MARKERS):
            if first.offset >= end:
                return
            header = await self._header(leader, name, first.offset)
            if header is None:
                return
            if header.magic != MAGIC or not header.is_control:
                appended_ms = first.appended_ms
                if appended_ms is None:
                    appended_ms = (
                        header.timestamp_at(first.offset) if header.magic == MAGIC else NO_TIMESTAMP
                    )
                self._firsts[record] = _First(first.offset, appended_ms, True)
                return
            # A response that does not advance would be read again and again.
            first = _First(max(header.next_offset, first.offset + 1), None, False)
            first = self._firsts[record] = _estimated(first, self._ends[name])

    async def _header(self, leader: int, name: TopicPartition, offset: int) -> BatchHeader | None:
        """Return the header of the first batch at or after an offset; None if it cannot be read."""
        found = await self._fetch(leader, name, offset)
        if found is not None and found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has removed the records after the committed offset.
            start = (await self._list_offsets(leader, _question((name,), _EARLIEST))).get(name)
            if start is None or start <= offset:
                return None
            found = await self._fetch(leader, name, start)
        if found is None or found.error_code or not found.records:
            return None
        return read_header(cast("Buffer", found.records))

    async def _fetch(
        self, leader: int, name: TopicPartition, offset: int
    ) -> FetchResponse.Response.Partition | None:
        """Return the part of a fetch of one batch."""
        from penstock.protocol.messages.fetch import FetchResponse

        connection = await self._connection(leader)
        response = await connection.call(
            _fetch_request(name, offset), FetchResponse, max_version=_FETCH_VERSION
        )
        return next(
            (partition for topic in response.responses for partition in topic.partitions), None
        )

    # Connections

    async def _connection(self, leader: int) -> Connection:
        connection = self._connections.get(leader)
        if connection is None or connection.closed:
            address = self._metadata.broker_address(leader)
            if address is None:
                raise KafkaError(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader} has no inter-broker listener"
                )
            connection = self._connections[leader] = await open_connection(
                self._world,
                *address,
                client_id=f"broker-{self._node_id}-metrics",
                connect_timeout_s=SCRAPE_REMOTE_S,
                request_timeout_s=SCRAPE_REMOTE_S,
            )
        return connection


def _estimated(first: _First, ends: EndOffsets | None) -> _First:
    """Estimate from end offsets when a record was appended, if it is not known."""
    if first.appended_ms is not None or ends is None:
        return first
    return first._replace(appended_ms=ends.appended_ms(first.offset))


def _question(names: Iterable[TopicPartition], which: int) -> _Question:
    from penstock.protocol.messages.list_offsets import ListOffsetsRequest

    topics: dict[str, list[TopicPartition]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name)
    part = ListOffsetsRequest.Topic
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=tuple(
            part(
                name=topic,
                partitions=tuple(
                    part.Partition(partition_index=name.partition, timestamp=which)
                    for name in of_topic
                ),
            )
            for topic, of_topic in topics.items()
        ),
    )
    return _Question(request, [name for of_topic in topics.values() for name in of_topic])


def _fetch_request(name: TopicPartition, offset: int) -> FetchRequest:
    """Return a request for one batch, without a session: a fetch returns the first batch also if it
    is larger than the bound."""
    from penstock.protocol.messages.fetch import FetchRequest

    partition = FetchRequest.Topic.Partition(
        partition=name.partition, fetch_offset=offset, partition_max_bytes=1
    )
    topic = FetchRequest.Topic(topic=name.topic, partitions=(partition,))
    return FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=1,
        topics=(topic,),
    )
