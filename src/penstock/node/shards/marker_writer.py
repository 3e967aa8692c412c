"""Transaction markers that a coordinator asks this broker to append to the partitions that it leads
(WriteTxnMarkers).

A marker is written when it is committed: until then the coordinator repeats its request. A marker
in a partition of __consumer_offsets goes through the group coordinator, whose pending offsets it
decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MARKERS_A_TURN
from penstock.node.metadata import MetadataView
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.records.build import end_transaction_marker
from penstock.world import World

if TYPE_CHECKING:
    from penstock.node.replication.replicas import Replicas
    from penstock.protocol.messages.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    Marker = WriteTxnMarkersRequest.Marker

# The coordinator of transactions retries the error of a partition that has no leader. It does not
# expect those of a group coordinator.
_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class GroupMarkers(Protocol):
    """The part of `Groups` that writes markers. KafkaError is raised by the call or through the
    awaitable."""

    def write_marker(
        self,
        partition_index: int,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Awaitable[None] | None: ...


class _Place(NamedTuple):
    """The place of a result in the response."""

    producer_id: int
    topic: str
    partition: int


class MarkerWriter:
    """`timeout_s` is request.timeout.ms: markers that are not committed by then are
    REQUEST_TIMED_OUT, and may be committed later."""

    def __init__(
        self,
        world: World,
        metadata: MetadataView,
        replicas: Replicas,
        groups: GroupMarkers,
        timeout_s: float,
    ) -> None:
        self._clock = world.clock
        self._metadata = metadata
        self._replicas = replicas
        self._groups = groups
        self._timeout_s = timeout_s

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Append all markers, wait until they are committed, and return one result each. Other work
        has its turn in between if there are many."""
        deadline = self._clock.monotonic() + self._timeout_s
        codes: dict[_Place, ErrorCode] = {}
        uncommitted: list[tuple[_Place, Awaitable[None]]] = []
        count = 0
        for marker in request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    place = _Place(marker.producer_id, topic.name, index)
                    codes[place] = ErrorCode.NONE
                    try:
                        waiting = self._append(marker, topic.name, index, deadline)
                    except KafkaError as error:
                        codes[place] = _code(error)
                    else:
                        if waiting is not None:
                            uncommitted.append((place, waiting))
                    count += 1
                    if count % MARKERS_A_TURN == 0:
                        await asyncio.sleep(0)
        if uncommitted:
            await asyncio.gather(
                *(_record(codes, place, waiting) for place, waiting in uncommitted)
            )
        return _response(codes)

    def _append(
        self, marker: Marker, topic: str, index: int, deadline: float
    ) -> Awaitable[None] | None:
        """Append a marker. Return an awaitable of its commit, None if it is committed already."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"producer {marker.producer_id}, epoch {marker.producer_epoch} has no transactions",
            )
        partition = self._replicas.partition(self._metadata.topic(topic), index)
        if topic == OFFSETS_TOPIC:
            return self._groups.write_marker(
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
        partition.check_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        batch = end_transaction_marker(
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        end_offset = partition.append(batch, acks_all=True, from_client=False).end_offset
        if partition.is_committed(end_offset):
            return None
        return partition.wait_committed(end_offset, deadline)


async def _record(codes: dict[_Place, ErrorCode], place: _Place, waiting: Awaitable[None]) -> None:
    try:
        await waiting
    except KafkaError as error:
        codes[place] = _code(error)


def _code(error: KafkaError) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NOT_READY else error.code


def _response(codes: dict[_Place, ErrorCode]) -> WriteTxnMarkersResponse:
    # Imported on first use, as handlers are: a node must start quickly.
    from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersResponse

    result = WriteTxnMarkersResponse.Marker
    producers: dict[int, dict[str, list[WriteTxnMarkersResponse.Marker.Topic.Partition]]] = {}
    for place, code in codes.items():
        producers.setdefault(place.producer_id, {}).setdefault(place.topic, []).append(
            result.Topic.Partition(partition_index=place.partition, error_code=code)
        )
    return WriteTxnMarkersResponse(
        markers=tuple(
            result(
                producer_id=producer_id,
                topics=tuple(
                    result.Topic(name=name, partitions=tuple(partitions))
                    for name, partitions in topics.items()
                ),
            )
            for producer_id, topics in producers.items()
        )
    )
