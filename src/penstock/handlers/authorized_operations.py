"""The operations on a resource that a client may perform, as Metadata and the Describe APIs return
them (KIP-430): bit n is the operation with code n.

There is no authorizer yet. As in Kafka without one, a client may perform every operation that the
resource supports.
"""

from __future__ import annotations

from enum import IntEnum

# Returned if the request does not ask for the operations.
NOT_INCLUDED = -(2**31)


class ResourceType(IntEnum):
    """The numbers are those of Kafka's ACLs."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


class AclOperation(IntEnum):
    """The numbers are those of Kafka's ACLs."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_SUPPORTED = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        *_CONFIGS,
    ),
}


def authorized_operations(resource: ResourceType, included: bool) -> int:
    """Return the operations as a bit field, or NOT_INCLUDED."""
    if not included:
        return NOT_INCLUDED
    return sum(1 << operation for operation in _SUPPORTED[resource])
