"""Asks the authorizer for the client of one request, and logs the first denial."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from penstock.handlers.audit_log import audit, described, quoted
from penstock.handlers.context import RequestContext
from penstock.limits import AUTHORIZED_A_TURN
from penstock.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from penstock.security.authorizer import Authorizer
from penstock.security.principals import KafkaPrincipal

_HINT = ". If it is a broker or a controller, add it to super.users on all nodes"


class Pace:
    """Counts the items that a check looks at in a turn of the event loop."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = AUTHORIZED_A_TURN

    def is_over(self) -> bool:
        """Count an item. Return True if the turn is over, and the next one begins."""
        self._left -= 1
        if self._left:
            return False
        self._left = AUTHORIZED_A_TURN
        return True


class Guard:
    """`principal` and `host` are those of the client: of a forwarded request the ones that the
    broker has seen. `version` is the version of the request."""

    __slots__ = ("_context", "_is_logged", "authorizer", "host", "pace", "principal", "version")

    def __init__(
        self,
        authorizer: Authorizer,
        context: RequestContext,
        principal: KafkaPrincipal | None = None,
        host: str | None = None,
    ) -> None:
        self.authorizer = authorizer
        self.principal = context.principal if principal is None else principal
        self.host = host_of(context.peer) if host is None else host
        self.version = context.version
        self._context = context
        self._is_logged = False
        self.pace = Pace()

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_filter: bool = False,
    ) -> bool:
        """Return True if the client may perform an operation. A denial is counted, and the first
        one of a request logged, unless the answer only filters what the client gets."""
        allowed = self.authorizer.allows(self.principal, self.host, operation, resource_type, name)
        # Not for a client whose request a broker forwards by this connection.
        if operation is AclOperation.CLUSTER_ACTION and self.principal == self._context.principal:
            self._context.connection.is_refused_node = not allowed
        if not allowed and not is_filter:
            self._denied(operation, resource_type, name)
        return allowed

    def allows_cluster(self, operation: AclOperation, *, is_filter: bool = False) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_filter=is_filter)

    def allows_some(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return True if the client may perform an operation on at least one resource."""
        return self.authorizer.allows_some(self.principal, self.host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the client may perform, as a bit field."""
        return self.authorizer.operations(self.principal, self.host, resource_type, name)

    @property
    def is_super_user(self) -> bool:
        return str(self.principal) in self.authorizer.super_users

    def _denied(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        self.authorizer.denied += 1
        if not self._is_logged:
            self._is_logged = True
            audit.info(
                "%s: denied, since %s from %s may not %s %s %s%s",
                described(self._context),
                quoted(str(self.principal)),
                self.host,
                operation.name,
                resource_type.name,
                quoted(name),
                _HINT if operation is AclOperation.CLUSTER_ACTION else "",
            )


@lru_cache(4_096)
def host_of(peer: str) -> str:
    """Return the host of host:port as Java writes addresses, which entries have: IPv6 in full, and
    an IPv4 address that is mapped into IPv6 as IPv4."""
    host = peer.rpartition(":")[0].strip("[]")
    try:
        return java_address(ipaddress.ip_address(host.partition("%")[0]).packed)
    except ValueError:
        return host


def java_address(packed: bytes) -> str:
    """Return the text of an address of 4 or 16 bytes, as InetAddress.getHostAddress does. Raises
    ValueError for other lengths."""
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return str(address)
