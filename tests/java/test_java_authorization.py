"""Each API with each of its rights, allowed and denied: Penstock's errors are Apache Kafka's.

Run by `make test-java`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import penstock
from penstock.protocol.apis import response_class
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.security.acls import Acl, PermissionType
from tests.e2e.raw_connection import RawConnection
from tests.java.kafka_node import SMALL, KafkaNode
from tests.security.authorized_node import denials
from tests.security.test_authorization import CASES, Case, case_id
from tests.security.test_authorization_clients import SETTINGS

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("cluster")]

# A new entry reaches the authorizer of Kafka's broker a moment after the response.
PROPAGATION_S = 5.0
# Kafka does not advertise the version with two-phase commit. ElectLeaders without partitions and
# requests for voters take long on a cluster of one node.
# If the group does not exist, Kafka has that error instead of those of topics in OffsetDelete and
# in OffsetFetch v1.
LEFT_OUT = {(22, 6), (43, 2), (80, 1), (81, 0), (9, 1), (47, 0)}
COMPARED = [case for case in CASES if (case.key, case.version) not in LEFT_OUT]


SMALL_OF_PENSTOCK = {name: value for name, value in SMALL.items() if not name.startswith("share.")}


class Server:
    """A broker, with a connection of the super user."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = connect(bootstrap, "admin")

    def grant(self, acls: Sequence[Acl]) -> None:
        """Replace alice's entries."""
        every = DeleteAclsRequest.Filter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:alice",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deleted = self._admin.request(DeleteAclsRequest(filters=(every,)), 3, DeleteAclsResponse)
        assert [each.error_code for each in deleted.filter_results] == [0]
        creations = tuple(
            CreateAclsRequest.Creation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        )
        created = self._admin.request(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
        assert not any(each.error_code for each in created.results), created
        topic = CreateTopicsRequest.Topic(name="t", num_partitions=1, replication_factor=1)
        self._admin.request(CreateTopicsRequest(topics=(topic,)), 7, CreateTopicsResponse)

    def denied(self, case: Case) -> set[int]:
        with connect(self._bootstrap, "alice") as alice:
            response: object = alice.request(case.request, case.version, response_class(case.key))
        return denials(response)


def connect(bootstrap: str, user: str) -> RawConnection:
    connection = RawConnection(bootstrap)
    handshake = connection.request(
        SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse
    )
    assert handshake.error_code == 0
    token = f"\0{user}\0{user}-secret".encode()
    answer = connection.request(
        SaslAuthenticateRequest(auth_bytes=token), 2, SaslAuthenticateResponse
    )
    assert answer.error_code == 0, answer.error_message
    return connection


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    directory: Path = tmp_path_factory.mktemp("kafka")
    settings = {
        **SETTINGS,
        "super.users": f"{SETTINGS['super.users']};User:broker",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    node = KafkaNode(directory, settings)
    node.start()
    try:
        with penstock.Cluster({**SMALL_OF_PENSTOCK, **settings}) as cluster:
            yield Server(node.bootstrap), Server(cluster.bootstrap_servers)
    finally:
        node.kill()


@pytest.mark.parametrize("case", COMPARED, ids=case_id)
def test_denials_are_those_of_kafka(servers: tuple[Server, Server], case: Case) -> None:
    kafka, ours = servers
    variants: list[Sequence[Acl]] = [[], case.needed, *case.also_enough]
    for missing in case.needed:
        rest = [acl for acl in case.needed if acl != missing]
        variants += [rest, [*case.needed, missing._replace(permission=PermissionType.DENY)]]
    for variant in variants:
        for server in servers:
            server.grant(variant)
        found = ours.denied(case)
        deadline = time.monotonic() + PROPAGATION_S
        while (expected := kafka.denied(case)) != found and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found == expected, f"with {variant}"
