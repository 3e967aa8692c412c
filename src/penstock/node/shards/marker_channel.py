"""WriteTxnMarkers to one broker: its connection, the request, and the codes of the response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.client.connection import Connection, open_connection
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.node.metadata import MetadataView
from penstock.world import World

if TYPE_CHECKING:
    from penstock.coordinator.transactions.table import WriteMarkers
    from penstock.protocol.messages.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

# The client id of a coordinator. The audit log leaves out the markers of coordinators by it.
SENDER = "broker-{}-txn-marker-sender"
_CONNECT_TIMEOUT_S = 2.0


class MarkerChannel:
    """A connection to one broker, opened on first use and again after it was lost. `timeout_s` is
    request.timeout.ms: the leader waits as long for the commit of a marker."""

    def __init__(
        self, world: World, node_id: int, metadata: MetadataView, broker_id: int, timeout_s: float
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._metadata = metadata
        self._broker_id = broker_id
        self._timeout_s = timeout_s
        self._connection: Connection | None = None

    async def call(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """KafkaError: the broker cannot be reached, or does not answer."""
        from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersResponse

        if self._connection is None or self._connection.closed:
            address = self._metadata.broker_address(self._broker_id)
            if address is None:
                raise KafkaError(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"broker {self._broker_id} has no inter-broker listener",
                )
            self._connection = await open_connection(
                self._world,
                *address,
                client_id=SENDER.format(self._node_id),
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                request_timeout_s=self._timeout_s,
            )
        return await self._connection.call(request, WriteTxnMarkersResponse)

    def close(self) -> None:
        """Close the connection, and fail the request in flight."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def marker_request(
    markers: Iterable[tuple[WriteMarkers, Iterable[TopicPartition]]],
) -> WriteTxnMarkersRequest:
    """Return the request with the markers of these transactions for these of their partitions."""
    # Imported on first use: a node must start quickly.
    from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

    return WriteTxnMarkersRequest(
        markers=tuple(
            WriteTxnMarkersRequest.Marker(
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                transaction_result=effect.commit,
                topics=tuple(
                    WriteTxnMarkersRequest.Marker.Topic(
                        name=topic, partition_indexes=tuple(indexes)
                    )
                    for topic, indexes in _by_topic(partitions).items()
                ),
                coordinator_epoch=effect.coordinator_epoch,
                transaction_version=effect.transaction_version,
            )
            for effect, partitions in markers
        )
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped


def result_codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    """Return a code for every producer id and partition; NONE where the marker is written."""
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): _known(
            partition.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
