"""DescribeCluster: the cluster's id, controller and brokers.

Behaviour
  On a broker's listener, as in Metadata: brokers with their endpoints on this listener, and this
  broker as the controller. On a controller's listener: the controllers, and the active one; those
  that registered with an endpoint on this listener (KIP-919), and the voters.
  Authorized operations are returned on request.

Version notes
  v1 adds the endpoint type: brokers (1) on a broker's listener, controllers (2) on a controller's.
  The other one is MISMATCHED_ENDPOINT_TYPE, and any other value UNSUPPORTED_ENDPOINT_TYPE. v2 can
  include fenced brokers.

Not implemented
  -
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.authorized_operations import cluster_operations
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.metadata import MetadataView
    from penstock.node.quorum.quorum import Quorum

_BROKERS, _CONTROLLERS = 1, 2


class Parts(Protocol):
    config: NodeConfig
    node_id: int
    cluster_id: str
    metadata: MetadataView
    quorum: Quorum


def handle(
    parts: Parts, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            request,
            f"there is no endpoint type {request.endpoint_type}",
        )
    to_controller = context.listener_name in parts.config.controller_listener_names
    if to_controller != (request.endpoint_type == _CONTROLLERS):
        here, there = ("controller", "broker") if to_controller else ("broker", "controller")
        return _refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            request,
            f"this is the listener of a {here}: ask the listener of a {there} for {there}s",
        )
    describe = _controllers if to_controller else _brokers
    return describe(parts, request, context)


def _brokers(
    parts: Parts, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    brokers = tuple(
        DescribeClusterResponse.Broker(
            broker_id=node_id,
            host=host,
            port=port,
            rack=rack,
            is_fenced=parts.metadata.image.brokers[node_id].fenced,
        )
        for node_id, host, port, rack in parts.metadata.advertised(
            context.listener_name, context.local_host, fenced=request.include_fenced_brokers
        )
    )
    return DescribeClusterResponse(
        cluster_id=parts.cluster_id,
        controller_id=parts.node_id,
        brokers=brokers,
        cluster_authorized_operations=_operations(request, context),
    )


def _controllers(
    parts: Parts, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Return the controllers. controller_id is the active one, -1 if there is none."""
    leader = parts.quorum.leader_id
    addresses = {
        node_id: (endpoint.host, endpoint.port)
        for node_id, registered in parts.metadata.image.controllers.items()
        for endpoint in registered.end_points
        if endpoint.name == context.listener_name
    }
    addresses |= {
        node_id: (address.host, address.port) for node_id, address in parts.quorum.voters()
    }
    controllers = tuple(
        DescribeClusterResponse.Broker(broker_id=node_id, host=host, port=port)
        for node_id, (host, port) in sorted(addresses.items())
    )
    return DescribeClusterResponse(
        cluster_id=parts.cluster_id,
        controller_id=-1 if leader is None else leader,
        brokers=controllers,
        endpoint_type=_CONTROLLERS,
        cluster_authorized_operations=_operations(request, context),
    )


def _operations(request: DescribeClusterRequest, context: RequestContext) -> int:
    return cluster_operations(context, included=request.include_cluster_authorized_operations)


def _refused(
    code: ErrorCode, request: DescribeClusterRequest, message: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, endpoint_type=request.endpoint_type
    )
