"""The values of one quota key, and which of them applies to a client. PURE.

Kafka's order of precedence, the most specific first:

    1  user and client id              5  default user and default client id
    2  user and default client id      6  default user
    3  user                            7  client id
    4  default user and client id      8  default client id

All clients for which the same sensor is found share one quota: those of a user (3 and 6), those
with a client id (7 and 8), or those of a user with a client id (1, 2, 4 and 5). A default is a
value for each name, not one for all of them together.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple, TypeVar

from penstock.security.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity, normalized_address

K = TypeVar("K")

# A user and a client id; None where all of them share the sensor.
SensorKey = tuple[str | None, str | None]


# A client chooses its id, of up to 32 kB, and sensors are kept for thousands of them.
_KEPT_CHARACTERS = 64


def _short(client_id: str) -> str:
    if len(client_id) <= _KEPT_CHARACTERS:
        return client_id
    return sha256(client_id.encode()).hexdigest()


class AppliedLimit(NamedTuple):
    value: float
    sensor: SensorKey


class ClientLimits:
    """The values of users, client ids, and pairs of both. The name None is the default."""

    __slots__ = ("_clients", "_pairs", "_users")

    def __init__(self) -> None:
        self._users: dict[str | None, float] = {}
        self._clients: dict[str | None, float] = {}
        self._pairs: dict[tuple[str | None, str | None], float] = {}

    def __bool__(self) -> bool:
        return bool(self._users or self._clients or self._pairs)

    def set(self, entity: QuotaEntity, value: float | None) -> None:
        """Set the value of an entity, or remove it. Entities of other types have no effect."""
        parts = dict(entity)
        if parts.keys() == {USER}:
            _put(self._users, parts[USER], value)
        elif parts.keys() == {CLIENT_ID}:
            _put(self._clients, parts[CLIENT_ID], value)
        elif parts.keys() == {USER, CLIENT_ID}:
            _put(self._pairs, (parts[USER], parts[CLIENT_ID]), value)

    def find(self, user: str, client_id: str) -> AppliedLimit | None:
        """Return the value that applies to a client, None if none does. A client without an id has
        the empty one."""
        pairs, users, clients = self._pairs, self._users, self._clients
        if pairs:
            value = pairs.get((user, client_id))
            if value is None:
                value = pairs.get((user, None))
            if value is not None:
                return AppliedLimit(value, (user, _short(client_id)))
        value = users.get(user)
        if value is not None:
            return AppliedLimit(value, (user, None))
        if pairs:
            value = pairs.get((None, client_id))
            if value is None:
                value = pairs.get((None, None))
            if value is not None:
                return AppliedLimit(value, (user, _short(client_id)))
        value = users.get(None)
        if value is not None:
            return AppliedLimit(value, (user, None))
        value = clients.get(client_id)
        if value is None:
            value = clients.get(None)
        return None if value is None else AppliedLimit(value, (None, _short(client_id)))


class AddressLimits:
    """The values of IP addresses, and their default."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str | None, float] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def set(self, entity: QuotaEntity, value: float | None) -> None:
        if len(entity) != 1 or entity[0][0] != IP:
            return
        name = entity[0][1]
        address = None if name is None else normalized_address(name)
        # A name of a host, which Kafka resolves, applies to no address.
        if name is None or address is not None:
            _put(self._values, address, value)

    def find(self, address: str) -> float | None:
        value = self._values.get(address)
        return self._values.get(None) if value is None else value


def _put(values: dict[K, float], key: K, value: float | None) -> None:
    # The controller refuses values that are not positive. Another release may have written one.
    if value is None or not value > 0:
        values.pop(key, None)
    else:
        values[key] = value
