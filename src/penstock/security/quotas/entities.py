"""The entities that quotas apply to, their keys, and filters of them (KIP-546, KIP-612). PURE.

An entity has one or two parts, each of a type and a name. The name None is the default of the type:
it applies to all names that have no quota of their own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import ErrorCode, KafkaError

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

# The largest value of each key that must be a whole number; None if fractions are allowed.
CLIENT_KEYS: Mapping[str, int | None] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
IP_KEYS: Mapping[str, int | None] = {CONNECTION_CREATION_RATE: 2**31 - 1}

# Types and names, sorted by type, each type once. Records of other releases may have other types;
# they are retained.
QuotaEntity = tuple[tuple[str, str | None], ...]

# Match types of a filter; the protocol's numbers.
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    return tuple(sorted(dict(parts).items(), key=lambda part: part[0]))


def entity_text(entity: QuotaEntity) -> str:
    """Return an entity as Kafka's errors show it."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def normalized_address(address: str) -> str | None:
    """Return an IP address in one spelling, or None if it is none. An IPv4 address that a socket
    of IPv6 reports is that of IPv4."""
    try:
        parsed = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(parsed if mapped is None else mapped)


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Entities that have these parts. `names` maps types to the names that match, `types` match any
    name. With `strict` an entity must not have other parts."""

    names: Mapping[str, str | None] = field(default_factory=dict)
    types: frozenset[str] = frozenset()
    strict: bool = False

    def matches(self, entity: QuotaEntity) -> bool:
        if self.strict and len(entity) != len(self.names) + len(self.types):
            return False
        parts = dict(entity)
        return all(kind in parts and parts[kind] == name for kind, name in self.names.items()) and (
            self.types <= parts.keys()
        )


def quota_filter(components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """Return the filter of a request's components: type, match type, name. The errors are
    Kafka's."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for kind, match_type, match in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in names or kind in types:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            names[kind] = match
        elif match_type == DEFAULT:
            if match is not None:
                raise _invalid(
                    "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
                )
            names[kind] = None
        elif match_type == SPECIFIED:
            if match is not None:
                raise _invalid(
                    "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
                )
            types.add(kind)
        else:
            raise _invalid(f"Unknown match type {match_type}")
    given = names.keys() | types
    if IP in given and len(given) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return QuotaFilter(names, frozenset(types), strict)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
