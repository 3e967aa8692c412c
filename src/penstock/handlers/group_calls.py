"""What the handlers of groups share: the caller of a request, and responses that may be awaited."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.coordinator.groups.table import Caller
from penstock.handlers.awaitables import all_of as all_of
from penstock.handlers.awaitables import then as then
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.protocol.schema import changed
from penstock.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.handlers.authorization.guard import Guard

T = TypeVar("T", OffsetCommitRequest.Topic, TxnOffsetCommitRequest.Topic)


def caller_of(context: RequestContext) -> Caller:
    """Kafka shows a client's address as Java does, with a slash."""
    guard = context.guard
    return Caller(
        context.client_id or "",
        "/" + context.peer.rpartition(":")[0],
        context.version,
        None if guard is None else partial(_may_describe, guard),
    )


def _may_describe(guard: Guard, topic: str) -> bool:
    return guard.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic, is_filter=True)


def split_missing(
    topics: Iterable[T], known: Callable[[T], Container[int] | None]
) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the topics with their partitions that exist, and those with partitions that do not.
    A topic for which `known` returns None stays as it is."""
    existing, missing = [], []
    for topic in topics:
        indexes = known(topic)
        absent = tuple(
            partition
            for partition in topic.partitions
            if indexes is not None and partition.partition_index not in indexes
        )
        if not absent:
            existing.append(topic)
            continue
        missing.append(changed(topic, partitions=absent))
        if len(absent) < len(topic.partitions):
            gone = {partition.partition_index for partition in absent}
            rest = tuple(p for p in topic.partitions if p.partition_index not in gone)
            existing.append(changed(topic, partitions=rest))
    return tuple(existing), tuple(missing)
