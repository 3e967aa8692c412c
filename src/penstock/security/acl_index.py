"""Finds the access control entries that apply to a resource. PURE.

A lookup reads the entries of the resource itself, of the wildcard `*` and of each prefix of the
name, for the principal and `User:*`, from the host and from everywhere. Its time depends on the
length of the name, and not on the number of entries.

Rights are bit fields: bit n is the operation with code n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.security.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    Resource,
)

# An entry's operations are in the low bits if it allows them, and above _DENIED if it denies them.
_DENIED = 32
_MASK = (1 << _DENIED) - 1
# Every operation that a bit field can have.
ALL_OPERATIONS = _MASK

_ALL = 1 << AclOperation.ALL
_DESCRIBE = 1 << AclOperation.DESCRIBE
_DESCRIBE_CONFIGS = 1 << AclOperation.DESCRIBE_CONFIGS
_IMPLY_DESCRIBE = sum(
    1 << operation
    for operation in (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    )
)
_IMPLY_DESCRIBE_CONFIGS = 1 << AclOperation.ALTER_CONFIGS


class Rights(NamedTuple):
    """What the entries of a resource allow and deny. `has_acls` tells if there is any entry for the
    resource, for whichever principal."""

    allowed: int
    denied: int
    has_acls: bool


class AclIndex:
    """All entries. Changed in place by `add` and `remove`."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.count = 0
        # By resource, then by principal and host: the operations.
        self._resources: dict[Resource, dict[tuple[str, str], int]] = {}
        # The resources that a principal is named for, each with its number of hosts.
        self._principals: dict[str, dict[Resource, int]] = {}
        # By principal, resource type and bit: how many entries there are.
        self._counts: Counter[tuple[str, int, int]] = Counter()
        # By resource type: how many prefixes of each length there are.
        self._prefix_lengths: dict[int, dict[int, int]] = {}
        # Entries that set a bit which another one has set, by resource, principal with host, and
        # bit: how many. Such entries differ in their ids, or in numbers that are not known here.
        self._repeated: dict[tuple[Resource, tuple[str, str], int], int] = {}
        for acl in acls:
            self.add(acl)

    # Changing

    def add(self, acl: Acl) -> None:
        self.count += 1
        resource, by_whom = acl.resource, (acl.principal, acl.host)
        entries = self._resources.get(resource)
        if entries is None:
            entries = self._resources[resource] = {}
            if resource.pattern == PatternType.PREFIXED:
                lengths = self._prefix_lengths.setdefault(resource.type, {})
                lengths[len(resource.name)] = lengths.get(len(resource.name), 0) + 1
        before = entries.get(by_whom)
        if before is None:
            resources = self._principals.setdefault(acl.principal, {})
            resources[resource] = resources.get(resource, 0) + 1
        bit = _bit(acl)
        self._counts[acl.principal, acl.resource_type, bit] += 1
        if before is not None and before & bit:
            same = resource, by_whom, bit
            self._repeated[same] = self._repeated.get(same, 0) + 1
        entries[by_whom] = (before or 0) | bit

    def remove(self, acl: Acl) -> None:
        """Remove an entry that was added, and no other one."""
        self.count -= 1
        resource, by_whom, bit = acl.resource, (acl.principal, acl.host), _bit(acl)
        counted = acl.principal, acl.resource_type, bit
        self._counts[counted] -= 1
        if not self._counts[counted]:
            del self._counts[counted]
        same = resource, by_whom, bit
        repeated = self._repeated.pop(same, 0)
        if repeated:
            if repeated > 1:
                self._repeated[same] = repeated - 1
            return
        entries = self._resources[resource]
        rest = entries[by_whom] & ~bit
        if rest:
            entries[by_whom] = rest
            return
        del entries[by_whom]
        resources = self._principals[acl.principal]
        resources[resource] -= 1
        if not resources[resource]:
            del resources[resource]
            if not resources:
                del self._principals[acl.principal]
        if not entries:
            del self._resources[resource]
            if resource.pattern == PatternType.PREFIXED:
                lengths = self._prefix_lengths[resource.type]
                lengths[len(resource.name)] -= 1
                if not lengths[len(resource.name)]:
                    del lengths[len(resource.name)]

    # Reading

    def rights(self, principal: str, host: str, resource_type: int, name: str) -> Rights:
        """Return what a principal may do with a resource from a host. What is denied is not
        subtracted from what is allowed."""
        found = 0
        has_acls = False
        keys = (
            (principal, host),
            (principal, WILDCARD),
            (WILDCARD_PRINCIPAL, host),
            (WILDCARD_PRINCIPAL, WILDCARD),
        )
        resources = self._resources
        patterns = [
            Resource(resource_type, PatternType.LITERAL, name),
            Resource(resource_type, PatternType.LITERAL, WILDCARD),
        ]
        patterns += [
            Resource(resource_type, PatternType.PREFIXED, name[:length])
            for length in self._prefix_lengths.get(resource_type, ())
            if length <= len(name)
        ]
        for pattern in patterns:
            entries = resources.get(pattern)
            if entries is not None:
                has_acls = True
                for key in keys:
                    found |= entries.get(key, 0)
        return Rights(_with_implied(found & _MASK), _with_all(found >> _DENIED), has_acls)

    def allows_some(
        self, principal: str, host: str, operation: AclOperation, resource_type: int
    ) -> bool:
        """Return True if the principal may perform the operation on at least one resource that can
        exist: an entry allows it, and no other one denies it for all names of that entry. As in
        Kafka no operation is implied here. Looks at the resources of the principal until one is
        allowed, and at none if no entry allows the operation."""
        wanted = _ALL | 1 << operation
        keys = [(name, at) for name in {principal, WILDCARD_PRINCIPAL} for at in (host, WILDCARD)]

        def found(resource: Resource) -> int:
            entries, operations = self._resources.get(resource, {}), 0
            for key in keys:
                operations |= entries.get(key, 0)
            return operations

        def is_denied(resource: Resource) -> bool:
            return bool(found(resource) >> _DENIED & wanted)

        if is_denied(Resource(resource_type, PatternType.LITERAL, WILDCARD)):
            return False
        return any(
            found(resource) & wanted and not _is_dominated(resource, is_denied)
            for name in {principal, WILDCARD_PRINCIPAL}
            if any(self._counts[name, resource_type, bit] for bit in (_ALL, 1 << operation))
            for resource in self._principals.get(name, ())
            if resource.type == resource_type
        )


def _is_dominated(resource: Resource, is_denied: Callable[[Resource], bool]) -> bool:
    """Return True if an entry denies all names that another one allows."""
    if resource.pattern == PatternType.LITERAL:
        if resource.name == WILDCARD:
            return False
        if is_denied(resource):
            return True
    return any(
        is_denied(Resource(resource.type, PatternType.PREFIXED, resource.name[:length]))
        for length in range(1, len(resource.name) + 1)
    )


def _bit(acl: Acl) -> int:
    """Return the bit of an entry. As in Kafka an entry that does not allow denies. An operation
    that is not known here is never asked for."""
    operation = acl.operation if 0 <= acl.operation < _DENIED else AclOperation.UNKNOWN
    shift = 0 if acl.permission == PermissionType.ALLOW else _DENIED
    return 1 << (operation + shift)


def _with_implied(operations: int) -> int:
    """Some operations imply others, but only in an entry that allows them."""
    if operations & _ALL:
        return ALL_OPERATIONS
    if operations & _IMPLY_DESCRIBE:
        operations |= _DESCRIBE
    if operations & _IMPLY_DESCRIBE_CONFIGS:
        operations |= _DESCRIBE_CONFIGS
    return operations


def _with_all(operations: int) -> int:
    return ALL_OPERATIONS if operations & _ALL else operations
