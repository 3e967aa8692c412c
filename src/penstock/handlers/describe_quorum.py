"""DescribeQuorum: the leader of the quorum, its voters and observers, and their log end offsets
(KIP-595, KIP-836).

Behaviour
  Only the leader of the quorum knows; every other node forwards the request to it.

Version notes
  v1 adds the times of the last fetch, v2 directory ids, the endpoints of the voters and an error
  message.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

LATEST = 2

_Partition = DescribeQuorumResponse.Topic.Partition

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: DescribeQuorumRequest, context: RequestContext
) -> Awaitable[DescribeQuorumResponse]:
    return _describe(parts, request, context)


async def _describe(
    parts: Parts, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """Ask for the latest version, so that a response in an earlier one can be made of it."""
    try:
        response = await parts.controllers.ask(request, decide, version=LATEST, requester=context)
    except KafkaError as error:
        return refused(request, error)
    return response if context.version >= LATEST else without_directories(response)


def without_directories(response: DescribeQuorumResponse) -> DescribeQuorumResponse:
    """Remove what only v2 can carry."""

    def plain(partition: _Partition) -> _Partition:
        return _Partition(
            partition_index=partition.partition_index,
            error_code=partition.error_code,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            high_watermark=partition.high_watermark,
            current_voters=tuple(map(_plain, partition.current_voters)),
            observers=tuple(map(_plain, partition.observers)),
        )

    topics = tuple(
        DescribeQuorumResponse.Topic(
            topic_name=topic.topic_name, partitions=tuple(map(plain, topic.partitions))
        )
        for topic in response.topics
    )
    return DescribeQuorumResponse(error_code=response.error_code, topics=topics)


def _plain(replica: _Partition.Replica) -> _Partition.Replica:
    return _Partition.Replica(
        replica_id=replica.replica_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_timestamp,
        last_caught_up_timestamp=replica.last_caught_up_timestamp,
    )


async def decide(
    controller: NodeController, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    return controller.describe_quorum(request)


def refused(_request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message)
