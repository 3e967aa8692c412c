"""DescribeCluster: the cluster's id, its controller and its brokers.

Behaviour
  As Metadata tells them: brokers as clients of this listener reach them, and the answering broker for the controller.

Version notes
  v1 brings the endpoint type. Brokers are what a broker's listener has (1); controllers (2) are MISMATCHED_ENDPOINT_TYPE there, and
  anything else UNSUPPORTED_ENDPOINT_TYPE. v2 can ask for fenced brokers too.

Not implemented
  Authorized operations: always unknown. Fenced brokers: a node that answers is not fenced, and there is no other one yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from penstock.node.node import Node

_BROKERS, _CONTROLLERS = 1, 2


def handle(node: Node, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, request, "this listener is a broker's: ask a controller's for controllers")
    if request.endpoint_type != _BROKERS:
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, request, f"there is no endpoint type {request.endpoint_type}")
    brokers = tuple(
        DescribeClusterResponse.Broker(broker_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in node.advertised(context.listener_name, context.local_host)
    )
    return DescribeClusterResponse(cluster_id=node.cluster_id, controller_id=node.node_id, brokers=brokers)


def _refused(code: ErrorCode, request: DescribeClusterRequest, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=request.endpoint_type)
