"""End offsets of partitions that have no in-sync replica on this broker, from their leaders.

The lag of a group is computed by its coordinator, which need not have a replica of the partitions
that the group reads. It asks their leaders with ListOffsets, one request per broker and scrape, and
remembers the answers: the time at which the end of a log passed an offset tells about how old the
record at that offset is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.client.connection import Connection, open_connection
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import REMEMBERED_END_OFFSETS, SCRAPE_REMOTE_S, SCRAPED_REMOTE_PARTITIONS
from penstock.metadata.image import NO_LEADER
from penstock.node.metadata import MetadataView
from penstock.world import World

if TYPE_CHECKING:
    from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

logger = logging.getLogger(__name__)

_LATEST = -1
_CONSUMER = -1


class _Seen(NamedTuple):
    """The log ended at this offset at the first time and at the last, in wall clock
    milliseconds."""

    first_ms: int
    last_ms: int
    end_offset: int


class RemoteOffsets:
    def __init__(self, world: World, node_id: int, metadata: MetadataView) -> None:
        self._world = world
        self._node_id = node_id
        self._metadata = metadata
        self._connections: dict[int, Connection] = {}
        self._seen: dict[TopicPartition, deque[_Seen]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def refresh(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks of these partitions, without those whose leader is not known
        or does not answer in time. Other partitions are forgotten."""
        self._seen = {name: self._seen[name] for name in wanted if name in self._seen}
        by_leader: dict[int, list[TopicPartition]] = {}
        for name in wanted:
            leader = self._leader_of(name)
            if leader is not None:
                by_leader.setdefault(leader, []).append(name)
        answers = await asyncio.gather(
            *(self._ask(leader, names) for leader, names in by_leader.items())
        )
        ends = {name: end for answer in answers for name, end in answer.items()}
        now_ms = self._world.clock.now_ms()
        for name, end in ends.items():
            self._remember(name, end, now_ms)
        return ends

    def age_s(self, name: TopicPartition, offset: int) -> float | None:
        """Return about how long ago the record at an offset was appended: between two scrapes, or
        at least since the first one."""
        now_ms, before = self._world.clock.now_ms(), None
        for seen in self._seen.get(name, ()):
            if seen.end_offset > offset:
                if before is None:
                    return max(0, now_ms - seen.first_ms) / 1000
                share = (offset - before.end_offset) / (seen.end_offset - before.end_offset)
                appended_ms = before.last_ms + share * (seen.first_ms - before.last_ms)
                return max(0.0, now_ms - appended_ms) / 1000
            before = seen
        return None

    def _remember(self, name: TopicPartition, end: int, now_ms: int) -> None:
        seen = self._seen.setdefault(name, deque(maxlen=REMEMBERED_END_OFFSETS))
        if seen and seen[-1].end_offset > end:
            seen.clear()  # an unclean election, or the topic was created again
        if seen and seen[-1].end_offset == end:
            seen[-1] = seen[-1]._replace(last_ms=now_ms)
        else:
            seen.append(_Seen(now_ms, now_ms, end))

    def _leader_of(self, name: TopicPartition) -> int | None:
        topic = self._metadata.image.topics.get(name.topic)
        state = None if topic is None else topic.partitions.get(name.partition)
        if state is None or state.leader in (NO_LEADER, self._node_id):
            return None
        return state.leader

    async def _ask(self, leader: int, names: list[TopicPartition]) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        remaining = iter(names)
        try:
            async with asyncio.timeout(SCRAPE_REMOTE_S):
                while some := list(islice(remaining, SCRAPED_REMOTE_PARTITIONS)):
                    ends |= _ends(await self._call(leader, some))
        except (KafkaError, OSError, TimeoutError) as error:
            logger.info(
                "no end offsets of %d partitions of broker %d: %r", len(names), leader, error
            )
        return ends

    async def _call(self, leader: int, names: Iterable[TopicPartition]) -> ListOffsetsResponse:
        from penstock.protocol.messages.list_offsets import ListOffsetsResponse

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
        return await connection.call(_request(names), ListOffsetsResponse)


def _request(names: Iterable[TopicPartition]) -> ListOffsetsRequest:
    from penstock.protocol.messages.list_offsets import ListOffsetsRequest

    topics: dict[str, list[ListOffsetsRequest.Topic.Partition]] = {}
    for topic, index in names:
        topics.setdefault(topic, []).append(
            ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=_LATEST)
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=tuple(
            ListOffsetsRequest.Topic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def _ends(response: ListOffsetsResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code and partition.offset >= 0
    }
