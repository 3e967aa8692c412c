"""Access control lists: operations, resources, patterns, entries and filters (Kafka's AclBinding
and AclBindingFilter). PURE.

An entry allows or denies a principal an operation on resources, from a host. It names one resource
(LITERAL), all resources of its type (LITERAL with the name `*`), or those whose names start with
its name (PREFIXED). The principal `User:*` is everybody, the host `*` is everywhere.

The numbers are those of the protocol. An entry has plain numbers: the metadata log may have some
that a later version of Kafka defined, and no entry may get lost.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"
# The name of the only resource of type CLUSTER.
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """ANY and MATCH are for filters. MATCH finds all entries that apply to a name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_Op = AclOperation
# The operations that a resource of each type has (Kafka's AclEntry.supportedOperations).
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        _Op.READ,
        _Op.WRITE,
        _Op.CREATE,
        _Op.DELETE,
        _Op.ALTER,
        _Op.DESCRIBE,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _Op.READ,
        _Op.DELETE,
        _Op.DESCRIBE,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _Op.CREATE,
        _Op.ALTER,
        _Op.DESCRIBE,
        _Op.CLUSTER_ACTION,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
        _Op.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_Op.WRITE, _Op.DESCRIBE, _Op.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_Op.DESCRIBE,),
    ResourceType.USER: (_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS),
}


class Resource(NamedTuple):
    """Which resources an entry is for."""

    type: int
    pattern: int
    name: str


class Acl(NamedTuple):
    """One entry. Two entries with the same fields are the same."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    @property
    def resource(self) -> Resource:
        return Resource(self.resource_type, self.pattern_type, self.resource_name)

    def __str__(self) -> str:
        return (
            f"{permission_name(self.permission)} {self.principal} from {self.host} "
            f"{operation_name(self.operation)} on {resource_type_name(self.resource_type)} "
            f"{pattern_type_name(self.pattern_type)} {self.resource_name!r}"
        )


# Every kind of number has the same one for all.
_ANY = 1


class AclFilter(NamedTuple):
    """Which entries DescribeAcls returns or DeleteAcls removes. None and ANY match everything."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = PermissionType.ANY

    def __str__(self) -> str:
        name = "all names" if self.resource_name is None else repr(self.resource_name)
        pattern = pattern_type_name(self.pattern_type)
        return (
            f"{permission_name(self.permission)} {self.principal or 'of all principals'} from "
            f"{self.host or 'all hosts'} {operation_name(self.operation)} on "
            f"{resource_type_name(self.resource_type)} {pattern} {name}"
        )

    def unknown_part(self) -> str | None:
        """Return Kafka's name for the part of the filter that has an unknown number, or None."""
        if not is_known(ResourceType, self.resource_type) or not is_known(
            PatternType, self.pattern_type
        ):
            return "patternFilter"
        if not is_known(AclOperation, self.operation) or not is_known(
            PermissionType, self.permission
        ):
            return "entryFilter"
        return None

    def matches(self, acl: Acl) -> bool:
        """A request compares its filters with all entries."""
        resource_type, name, pattern, principal, host, operation, permission = self
        return (
            (principal is None or principal == acl.principal)
            and (resource_type == _ANY or resource_type == acl.resource_type)
            and (operation == _ANY or operation == acl.operation)
            and (host is None or host == acl.host)
            and (permission == _ANY or permission == acl.permission)
            and (pattern == _ANY or pattern == PatternType.MATCH or pattern == acl.pattern_type)
            and (name is None or self._matches_name(acl))
        )

    def _matches_name(self, acl: Acl) -> bool:
        name = self.resource_name or ""
        if self.pattern_type != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


def is_known(kind: type[IntEnum], number: int) -> bool:
    """Return True if the number is defined, and is not that of UNKNOWN."""
    return number != 0 and number in kind._value2member_map_


def resource_type_name(number: int) -> str:
    return _name(ResourceType, number)


def pattern_type_name(number: int) -> str:
    return _name(PatternType, number)


def operation_name(number: int) -> str:
    return _name(AclOperation, number)


def permission_name(number: int) -> str:
    return _name(PermissionType, number)


def _name(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if is_known(kind, number) else "UNKNOWN"
