"""The operations on a resource that a client may perform, as Metadata and the Describe APIs return
them (KIP-430): bit n is the operation with code n.

Without an authorizer a client may perform every operation that the resource supports.
"""

from __future__ import annotations

from penstock.handlers.context import RequestContext
from penstock.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
)

# Returned if the request does not ask for the operations.
NOT_INCLUDED = -(2**31)
_ALL = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}


def authorized_operations(
    context: RequestContext, resource_type: ResourceType, name: str, *, included: bool
) -> int:
    """Return the operations as a bit field, or NOT_INCLUDED."""
    if not included:
        return NOT_INCLUDED
    guard = context.guard
    return _ALL[resource_type] if guard is None else guard.operations(resource_type, name)


def cluster_operations(context: RequestContext, *, included: bool) -> int:
    """Return the operations on the cluster: none for a client that may not describe it."""
    if not included:
        return NOT_INCLUDED
    if context.guard is not None and not context.guard.allows_cluster(AclOperation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME, included=True)
