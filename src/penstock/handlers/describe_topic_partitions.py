"""DescribeTopicPartitions: topics and their partitions, in pages (KIP-966).

Behaviour
  Topics are sorted by name; an empty list is all topics. A page has at most
  response_partition_limit and at most 2,000 partitions; if more remain, next_cursor says where the
  next page begins. If the cursor's topic has been deleted, the page begins at the next topic.
  Unknown topics are returned with their error and do not count towards the limit. As in Kafka, all
  topics have their authorized operations.

Version notes
  One version.

Not implemented
  A cursor with a negative partition closes the connection: the response has no field for the error.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, ProtocolError
from penstock.handlers.authorized_operations import authorized_operations
from penstock.handlers.context import Exclusive, RequestContext
from penstock.handlers.topic_view import (
    INTERNAL_TOPICS,
    absence,
    live_brokers,
    offline_replicas,
    partition_error,
)
from penstock.limits import DESCRIBED_A_TURN, MAX_DESCRIBED_PARTITIONS
from penstock.metadata.image import TopicImage
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from penstock.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView

Topic = DescribeTopicPartitionsResponse.Topic
NextCursor = DescribeTopicPartitionsResponse.NextCursor


class Parts(Protocol):
    node_id: int
    metadata: MetadataView


def handle(
    parts: Parts, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse | Exclusive[DescribeTopicPartitionsResponse]:
    if request.cursor is not None and request.cursor.partition_index < 0:
        raise ProtocolError(
            "a DescribeTopicPartitions cursor has the negative partition "
            f"{request.cursor.partition_index}"
        )
    if not request.topics and context.guard is not None:
        return Exclusive(_describe_allowed(parts, request, context))
    names = sorted({topic.name for topic in request.topics}) or parts.metadata.sorted_topic_names
    page, next_cursor = _page(parts.metadata, request, context, names)
    topics = _topics(page, live_brokers(parts), context)
    if sum(len(indexes) for _topic, indexes in page) > DESCRIBED_A_TURN:
        return Exclusive(_respond_later(topics, next_cursor))
    return _response(list(filter(None, topics)), next_cursor)


async def _describe_allowed(
    parts: Parts, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe those of all topics that the client may describe. There may be 100,000 others, which
    are skipped over several turns of the event loop."""
    names = parts.metadata.sorted_topic_names
    first_name = request.cursor.topic_name if request.cursor is not None else ""
    limit = _limit(request)
    allowed: list[str] = []
    following: NextCursor | None = None
    for count, name in enumerate(islice(names, bisect_left(names, first_name), None), 1):
        if _may_describe(context, name, is_filter=True):
            if len(allowed) == limit:
                following = NextCursor(topic_name=name, partition_index=0)
                break
            allowed.append(name)
        if count % DESCRIBED_A_TURN == 0:
            await asyncio.sleep(0)
    page, next_cursor = _page(parts.metadata, request, context, allowed)
    # The page may have fewer partitions than topics: some topics were deleted meanwhile, or the one
    # of the cursor was created again with fewer partitions.
    next_cursor = next_cursor or following
    # A topic that was deleted meanwhile is left out.
    existing = [(topic, indexes) for topic, indexes in page if isinstance(topic, TopicImage)]
    return await _respond_later(_topics(existing, live_brokers(parts), context), next_cursor)


def _may_describe(context: RequestContext, name: str, *, is_filter: bool = False) -> bool:
    guard = context.guard
    return guard is None or guard.allows(
        AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_filter=is_filter
    )


def _limit(request: DescribeTopicPartitionsRequest) -> int:
    return max(min(request.response_partition_limit, MAX_DESCRIBED_PARTITIONS), 1)


def _page(
    metadata: MetadataView,
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
    names: list[str],
) -> tuple[list[tuple[TopicImage | str, list[int]]], NextCursor | None]:
    """Return the topics and the partitions of a page, and the cursor of the next page. A topic that
    does not exist, or that the client may not describe, is a name."""
    cursor = request.cursor
    first_name, first_index = (
        (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    )
    remaining = _limit(request)
    page: list[tuple[TopicImage | str, list[int]]] = []
    for name in islice(names, bisect_left(names, first_name), None):
        topic = metadata.image.topics.get(name)
        if topic is None or not _may_describe(context, name, is_filter=True):
            page.append((name, []))
            continue
        start = first_index if name == first_name else 0
        unlimited = (index for index in topic.partitions if index >= start)
        indexes = list(islice(unlimited, remaining + 1))
        if remaining == 0:
            first = indexes[0] if indexes else 0
            return page, NextCursor(topic_name=name, partition_index=first)
        page.append((topic, indexes[:remaining]))
        if len(indexes) > remaining:
            return page, NextCursor(topic_name=name, partition_index=indexes[remaining])
        remaining -= len(indexes)
    return page, None


def _topics(
    page: Sequence[tuple[TopicImage | str, list[int]]], live: set[int], context: RequestContext
) -> Iterator[Topic | None]:
    """Yield the topics of a page, and None after each DESCRIBED_A_TURN partitions."""
    for topic, indexes in page:
        if isinstance(topic, str):
            if not _may_describe(context, topic):
                yield Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=topic)
                continue
            yield Topic(
                error_code=absence(topic),
                name=topic,
                topic_authorized_operations=_operations(context, topic),
            )
            continue
        partitions: list[Topic.Partition] = []
        for position in range(0, len(indexes), DESCRIBED_A_TURN):
            partitions += (
                _partition(topic, index, live)
                for index in indexes[position : position + DESCRIBED_A_TURN]
            )
            yield None
        yield Topic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(partitions),
            topic_authorized_operations=_operations(context, topic.name),
        )


def _operations(context: RequestContext, name: str) -> int:
    return authorized_operations(context, ResourceType.TOPIC, name, included=True)


async def _respond_later(
    topics: Iterator[Topic | None], next_cursor: NextCursor | None
) -> DescribeTopicPartitionsResponse:
    """Build a page over several turns of the event loop."""
    described: list[Topic] = []
    for topic in topics:
        if topic is None:
            await asyncio.sleep(0)
        else:
            described.append(topic)
    return _response(described, next_cursor)


def _response(
    topics: list[Topic], next_cursor: NextCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _partition(topic: TopicImage, index: int, live: set[int]) -> Topic.Partition:
    state = topic.partitions[index]
    return Topic.Partition(
        error_code=partition_error(state, live),
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        eligible_leader_replicas=state.eligible_leader_replicas,
        last_known_elr=state.last_known_elr,
        offline_replicas=offline_replicas(state, live),
    )
