"""Bugs planted in fetches and in the requests between brokers and controllers.

A simulated cluster has few partitions, so the bounds on requests are small here: the receivers
accept `_BOUND` partitions, where a real node accepts 100,000 objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.handlers import offset_for_leader_epoch
from penstock.node.controller.controller import NodeController
from penstock.node.fetch.fetches import Fetches
from penstock.node.fetch.reader import FetchParams
from penstock.node.fetch.state import CONSUMER_ID
from penstock.node.partition import isr_changes
from penstock.node.replication import follower_session
from penstock.protocol.messages.alter_partition import AlterPartitionRequest
from penstock.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from penstock.sim.harness import replaced

_BOUND = 2
_UNBOUNDED = 2**31

EpochEnd = OffsetForLeaderEpochResponse.Topic.Partition


def epoch_ends_capped_at_the_high_watermark() -> AbstractContextManager[None]:
    """OffsetForLeaderEpoch returns no offset above the high watermark, which lags on a new
    leader."""

    def make(end: Any) -> Any:
        def capped(parts: Any, name: str, requested: Any) -> EpochEnd:
            found: EpochEnd = end(parts, name, requested)
            if found.error_code:
                return found
            topic = parts.metadata.topic(name)
            partition = parts.replicas.partition(topic, requested.partition)
            return EpochEnd(
                partition=found.partition,
                leader_epoch=found.leader_epoch,
                end_offset=min(found.end_offset, partition.high_watermark),
            )

        return capped

    return replaced(offset_for_leader_epoch, "_end", make)


def impostors_change_fetch_sessions() -> AbstractContextManager[None]:
    """A client that poses as a replica opens and closes the fetch sessions of that replica."""
    return replaced(Fetches, "is_verified", lambda _original: lambda _fetches, _params: True)


@contextlib.contextmanager
def small_request_bounds(fetched: int = _BOUND, altered: int = _BOUND) -> Iterator[None]:
    """Leaders and controllers refuse requests of more than two partitions, and brokers send at most
    so many, or `fetched` and `altered`. With two of each the rules must hold."""

    def bound_fetches(fetch: Any) -> Any:
        def bounded(
            fetches: Fetches,
            params: FetchParams,
            session_id: int,
            session_epoch: int,
            requested: list[Any],
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            if params.replica_id != CONSUMER_ID and len(requested) > _BOUND:
                raise ProtocolError(f"a fetch lists {len(requested)} partitions")
            return fetch(fetches, params, session_id, session_epoch, requested, *args, **kwargs)

        return bounded

    def bound_alterations(alter: Any) -> Any:
        def bounded(controller: NodeController, request: AlterPartitionRequest) -> Awaitable[Any]:
            count = sum(len(topic.partitions) for topic in request.topics)
            if count > _BOUND:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{count} partitions are altered")
            changed: Awaitable[Any] = alter(controller, request)
            return changed

        return bounded

    with contextlib.ExitStack() as stack:
        for owner, name, make in (
            (Fetches, "fetch", bound_fetches),
            (NodeController, "alter_partition", bound_alterations),
            (follower_session, "MAX_PARTITIONS_PER_FETCH", lambda _original: fetched),
            # A proposal counts as at least two objects, the partition and its leader.
            (isr_changes, "MAX_ALTER_PARTITION_OBJECTS", lambda _original: 2 * altered),
        ):
            stack.enter_context(replaced(owner, name, make))
        yield


def follower_fetches_not_split() -> AbstractContextManager[None]:
    """A follower's request lists all its partitions, which its leader refuses, forever."""
    return small_request_bounds(fetched=_UNBOUNDED)


def isr_changes_not_split() -> AbstractContextManager[None]:
    """AlterPartition has all ISR changes of a broker, which the controller refuses, forever."""
    return small_request_bounds(altered=_UNBOUNDED)


PLANTED_BROKER = (
    epoch_ends_capped_at_the_high_watermark,
    impostors_change_fetch_sessions,
    follower_fetches_not_split,
    isr_changes_not_split,
)
