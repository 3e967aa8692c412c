"""Decides who may do what, as Kafka's StandardAuthorizer does. PURE.

Laws
  1. A super user may do everything.
  2. Before the access control entries are loaded, nobody else may do anything.
  3. An entry that denies an operation comes before all that allow it.
  4. READ, WRITE, DELETE and ALTER allow DESCRIBE; ALTER_CONFIGS allows DESCRIBE_CONFIGS. Denying
     them denies nothing else.
  5. If no entry names the resource, for whichever principal, allow.everyone.if.no.acl.found
     decides. If an entry names it and none matches, the operation is denied.

Results are cached by principal, host and resource until an entry changes: a client asks for the
same topics in every request.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from penstock.limits import ACLS_INDEXED_A_TURN, CACHED_AUTHORIZATIONS, CACHED_NAME_CHARACTERS
from penstock.security.acl_index import ALL_OPERATIONS, AclIndex
from penstock.security.acls import SUPPORTED_OPERATIONS, Acl, AclOperation, ResourceType
from penstock.security.principals import KafkaPrincipal

# A name that Kafka asks for where it needs the rights of super users, and of everybody.
K = TypeVar("K")
V = TypeVar("V")

_ANY_NAME = "hardcode"
_SUPPORTED_BITS = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}
# The entry with an id before and after a change, None where it does not exist.
AclChange = tuple[Acl | None, Acl | None]


class Authorizer:
    """`is_ready` is True when the entries of the metadata log are loaded, see `complete_load`."""

    def __init__(
        self,
        super_users: Iterable[str] = (),
        *,
        allow_everyone: bool = False,
        is_ready: bool = False,
    ) -> None:
        self.is_ready = is_ready
        # How many resources were denied to clients that asked for them.
        self.denied = 0
        self.super_users = frozenset(super_users)
        self._is_indexing = False
        self._is_load_complete = is_ready
        self._without_acls = ALL_OPERATIONS if allow_everyone else 0
        self._index = AclIndex()
        # By principal, host, resource type and name: the operations.
        self._cache: dict[tuple[str, str, int, str], int] = {}
        self._some_cache: dict[tuple[str, str, AclOperation, int], bool] = {}

    @property
    def acl_count(self) -> int:
        return self._index.count

    # Questions

    def allows(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        return bool(self._operations(principal, host, resource_type, name) >> operation & 1)

    def operations(
        self, principal: KafkaPrincipal, host: str, resource_type: ResourceType, name: str
    ) -> int:
        """Return the operations on a resource that are allowed, of those that it supports: bit n is
        the operation with code n."""
        supported = _SUPPORTED_BITS[resource_type]
        return self._operations(principal, host, resource_type, name) & supported

    def allows_some(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
    ) -> bool:
        """Return True if the operation is allowed on at least one resource of this type (Kafka's
        authorizeByResourceType)."""
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        if not self.is_ready:
            return False
        key = str(principal), host, operation, resource_type
        found = self._some_cache.get(key)
        if found is None:
            found = self._index.allows_some(*key)
            _put(self._some_cache, key, found)
        return found

    def _operations(
        self, principal: KafkaPrincipal, host: str, resource_type: int, name: str
    ) -> int:
        text = str(principal)
        key = text, host, resource_type, name
        operations = self._cache.get(key)
        if operations is None:
            if text in self.super_users:
                operations = ALL_OPERATIONS
            elif not self.is_ready:
                return 0
            else:
                rights = self._index.rights(text, host, resource_type, name)
                operations = (
                    rights.allowed & ~rights.denied if rights.has_acls else self._without_acls
                )
            if len(name) <= CACHED_NAME_CHARACTERS:
                _put(self._cache, key, operations)
        return operations

    # Changes

    def complete_load(self) -> None:
        """Decide by the entries from now on, or from the end of the index that is being made."""
        self._is_load_complete = True
        self.is_ready = self.is_ready or not self._is_indexing

    def apply(
        self, changes: Mapping[UUID, AclChange], acls: Mapping[UUID, Acl]
    ) -> Generator[None, None, None]:
        """Apply the changes of an image, whose entries are `acls`. Many changes, as of a snapshot,
        are indexed in bounded parts: yields between them, and decides by the entries of before
        until all are indexed. Some of them would allow what others deny."""
        if len(changes) > ACLS_INDEXED_A_TURN:
            self._is_indexing = True
            index = AclIndex()
            for number, acl in enumerate(acls.values(), 1):
                index.add(acl)
                if number % ACLS_INDEXED_A_TURN == 0:
                    yield
            self._index = index
            self._is_indexing = False
            self.is_ready = self._is_load_complete
        else:
            for before, after in changes.values():
                if before is not None:
                    self._index.remove(before)
                if after is not None:
                    self._index.add(after)
        self._cache.clear()
        self._some_cache.clear()


def _put(cache: dict[K, V], key: K, value: V) -> None:
    """A hostile client can ask for any number of names."""
    if len(cache) >= CACHED_AUTHORIZATIONS:
        cache.clear()
    cache[key] = value
