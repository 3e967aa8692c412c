"""A fake node whose handlers have their checks, and clients with principals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar, cast
from uuid import UUID

from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from penstock.handlers import load
from penstock.handlers.authorization.guarded import guarded
from penstock.handlers.authorization.table import BROKER_CHECKS
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.protocol.apis import request_class
from penstock.protocol.codec import decode, encode
from penstock.protocol.schema import EncodedArray, EncodedParts, fields_of
from penstock.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.security.authorizer import AclChange, Authorizer
from penstock.security.principals import KafkaPrincipal
from penstock.world.sim import Simulation
from tests.handlers.fake_node import FakeNode

T = TypeVar("T")

ALICE = KafkaPrincipal("User", "alice")
ROOT = KafkaPrincipal("User", "root")
# All AUTHORIZATION_FAILED errors: topic, group, cluster, transactional id, delegation token.
DENIED = {29, 30, 31, 53, 65}

Right = tuple[AclOperation, ResourceType, str]


def allow(
    operation: AclOperation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    permission: PermissionType = PermissionType.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
) -> Acl:
    return Acl(resource_type, name, pattern, principal, "*", operation, permission)


class AuthorizedNode(FakeNode):
    """`root` is a super user. `grant` replaces all access control entries."""

    def __init__(self, simulation: Simulation, **settings: str) -> None:
        super().__init__(simulation, **{"authorizer.class.name": STANDARD_AUTHORIZER, **settings})
        self.authorizer = Authorizer([str(ROOT)], is_ready=True)
        self.parts.authorizer = self.authorizer
        self._load = guarded(load, self.authorizer, BROKER_CHECKS)
        self._acls: dict[UUID, Acl] = {}

    def grant(self, *acls: Acl) -> None:
        changes: dict[UUID, AclChange] = {key: (acl, None) for key, acl in self._acls.items()}
        numbers = range(len(self._acls) + 1000, len(self._acls) + 1000 + len(acls))
        self._acls = {
            UUID(int=number + 10_000 * self._round()): acl
            for number, acl in zip(numbers, acls, strict=True)
        }
        changes |= {key: (None, acl) for key, acl in self._acls.items()}
        for _step in self.authorizer.apply(changes, self._acls):
            pass

    _rounds = 0

    def _round(self) -> int:
        self._rounds += 1
        return self._rounds

    def call(
        self, api_key: int, version: int, request: object, principal: KafkaPrincipal = ALICE
    ) -> Any:
        connection = ConnectionHandle()
        connection.principal = principal
        context = RequestContext(
            api_key,
            version,
            7,
            "test",
            "PLAINTEXT",
            "10.0.0.1",
            9092,
            "10.0.0.2:5000",
            0.0,
            connection,
        )
        return self._load(api_key)(self.parts, request, context)

    async def answer(
        self, api_key: int, version: int, request: object, principal: KafkaPrincipal = ALICE
    ) -> Any:
        """Return the response; it must be possible to encode it in the version of its request."""
        returned = self.call(api_key, version, request, principal)
        response = await returned if isinstance(returned, Awaitable) else returned
        parts = encode(response, version)
        if any(
            isinstance(getattr(response, field.name), EncodedArray | EncodedParts)
            for field in fields_of(type(response))
        ):
            return decode(type(response), version, b"".join(cast("list[bytes]", parts)))
        return response


def run(test: Callable[[AuthorizedNode], Coroutine[Any, Any, T]], **settings: str) -> T:
    simulation = Simulation(seed=1)
    return simulation.run(test(AuthorizedNode(simulation, **settings)))


def denials(response: object) -> set[int]:
    """Return the AUTHORIZATION_FAILED errors of a response."""
    return set(_codes(response)) & DENIED


def _codes(value: Any) -> Iterator[int]:
    for field in fields_of(type(value)):
        found = getattr(value, field.name)
        if field.name.endswith("error_code"):
            yield found
        elif field.struct is not None and found is not None:
            elements: Iterable[Any] = found if isinstance(found, tuple) else (found,)
            for element in elements:
                yield from _codes(element)


# Requests


def on_cluster(operation: AclOperation) -> Acl:
    return allow(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def request(key: int, /, **fields: object) -> Any:
    return request_class(key)(**fields)


def topic(key: int, /, *path: str, **fields: object) -> Any:
    struct: Any = request_class(key)
    for name in path:
        struct = getattr(struct, name)
    return struct(**fields)


def produced(data: bytes, **fields: object) -> Any:
    partition = topic(0, "TopicData", "PartitionData", index=0, records=data)
    data_of_topic = topic(0, "TopicData", name="t", partition_data=(partition,))
    return request(0, acks=1, topic_data=(data_of_topic,), **fields)


COMMIT = topic(8, "Topic", "Partition", partition_index=0, committed_offset=1)
CREATION = topic(
    30,
    "Creation",
    resource_type=2,
    resource_name="a",
    principal="User:x",
    host="*",
    operation=3,
    permission_type=3,
)
FILTER = topic(31, "Filter", resource_type_filter=1, operation=1, permission_type=1)
