"""Requests that brokers forward: the controller checks them for the client's principal."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.handlers import CONTROLLER_SERVED, load
from penstock.handlers.authorization.guarded import guarded
from penstock.handlers.authorization.table import CONTROLLER_CHECKS
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.node.broker.controllers import ControllerChannel, Controllers
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.headers import decode_response_header, encode_request_header
from penstock.protocol.internal.principal import DefaultPrincipalData
from penstock.protocol.internal.versioned import decode_versioned, encode_versioned
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.security.acls import AclOperation, ResourceType
from penstock.security.principals import KafkaPrincipal
from tests.security.authorized_node import ALICE, ROOT, AuthorizedNode, allow, run

BROKER = KafkaPrincipal("User", "broker")
CREATE_TOPICS, VERSION = 19, 7
ADDRESS = bytes([10, 0, 0, 9])
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MAY_FORWARD = allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, principal="User:broker")
CREATE = allow(AclOperation.CREATE, ResourceType.TOPIC, "orders")


def envelope(
    principal: KafkaPrincipal | bytes | None = ALICE, address: bytes = ADDRESS
) -> EnvelopeRequest:
    topic = CreateTopicsRequest.Topic(name="orders", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=(topic,))
    if isinstance(principal, KafkaPrincipal):
        principal = encode_versioned(DefaultPrincipalData(type=principal.type, name=principal.name))
    return EnvelopeRequest(
        request_data=encode_request_header(CREATE_TOPICS, VERSION, 0, "client")
        + encode_bytes(request, VERSION),
        request_principal=principal,
        client_host_address=address,
    )


async def forward(
    node: AuthorizedNode, request: EnvelopeRequest, broker: KafkaPrincipal = BROKER
) -> EnvelopeResponse:
    connection = ConnectionHandle()
    connection.principal = broker
    context = RequestContext(
        58, 0, 7, "broker-1", "CONTROLLER", "10.0.0.1", 9093, "10.0.0.2:5000", 0.0, connection
    )
    controller: Any = node.controllers._controller
    controller.is_active = True
    parts = SimpleNamespace(controller=controller, metadata=node.metadata)
    handlers = guarded(partial(load, served=CONTROLLER_SERVED), node.authorizer, CONTROLLER_CHECKS)
    response = handlers(58)(parts, request, context)
    if isinstance(response, Awaitable):
        response = await response
    assert isinstance(response, EnvelopeResponse)
    return response


def created(response: EnvelopeResponse) -> list[int]:
    assert response.error_code == 0
    data = response.response_data or b""
    _header, end = decode_response_header(CREATE_TOPICS, VERSION, data)
    inner = decode(CreateTopicsResponse, VERSION, data[end:])
    return [topic.error_code for topic in inner.topics]


def test_the_client_of_a_forwarded_request_needs_the_rights() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.grant(MAY_FORWARD)
        assert created(await forward(node, envelope())) == [TOPIC_DENIED]
        assert "orders" not in node.image.topics
        node.grant(MAY_FORWARD, CREATE._replace(host="10.0.0.2"))
        assert created(await forward(node, envelope())) == [TOPIC_DENIED], "the broker's address"
        node.grant(MAY_FORWARD, CREATE._replace(host="10.0.0.9"))
        assert created(await forward(node, envelope())) == [0]
        assert "orders" in node.image.topics

    run(main)


def test_only_brokers_forward_requests() -> None:
    """Otherwise a client could choose its principal."""

    async def main(node: AuthorizedNode) -> None:
        node.grant(CREATE)
        for broker in (BROKER, ALICE):
            response = await forward(node, envelope(ROOT), broker)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert response.response_data is None
        assert "orders" not in node.image.topics

    run(main)


def test_a_request_without_a_principal_is_the_brokers_own() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.grant(MAY_FORWARD)
        assert created(await forward(node, envelope(None))) == [TOPIC_DENIED]
        node.grant(MAY_FORWARD, CREATE._replace(principal="User:broker"))
        assert created(await forward(node, envelope(None))) == [0]

    run(main)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (envelope(b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(b"\0\x07User"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(b"\0\0\xff\xff\xff\xff\x0f"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(address=b""), ErrorCode.INVALID_REQUEST),
        (envelope(address=b"12345"), ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(request_data=b"x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_envelopes_are_refused(request_: EnvelopeRequest, code: ErrorCode) -> None:
    async def main(node: AuthorizedNode) -> None:
        node.grant(MAY_FORWARD)
        assert (await forward(node, request_)).error_code == code
        assert node.image.topics == {}

    run(main)


def test_a_broker_forwards_the_principal_and_the_address_of_its_client() -> None:
    sent: list[EnvelopeRequest] = []

    class Channel:
        async def call(
            self, request: EnvelopeRequest, _response: type, *, timeout_s: float
        ) -> EnvelopeResponse:
            assert timeout_s > 0
            sent.append(request)
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)

    async def main(node: AuthorizedNode) -> None:
        async def wait(_names: object) -> None:
            return None

        channel: ControllerChannel = Channel()  # type: ignore[assignment]
        controllers = Controllers(node.config, channel, None, wait)
        requester = SimpleNamespace(
            client_id="c", peer="10.0.0.9:1234", principal=ALICE, token_authenticated=True
        )
        for each in (requester, None):
            with pytest.raises(Exception, match="refused the forwarded"):
                await controllers.ask(
                    CreateTopicsRequest(),
                    lambda _controller, _request: wait(()),
                    version=VERSION,
                    requester=each,
                )

    run(main)
    of_client, own = sent
    assert of_client.client_host_address == ADDRESS
    data = decode_versioned(DefaultPrincipalData, of_client.request_principal or b"")
    assert (data.type, data.name, data.token_authenticated) == ("User", "alice", True)
    assert own.request_principal is None


def test_a_forwarded_bearer_of_a_token_cannot_create_another_one() -> None:
    """The token of the client travels in the envelope."""
    create_token, version = 38, 3

    def forwarded(*, token_authenticated: bool, owner: str | None = None) -> EnvelopeRequest:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User", owner_principal_name=owner
        )
        principal = DefaultPrincipalData(
            type="User", name="alice", token_authenticated=token_authenticated
        )
        return EnvelopeRequest(
            request_data=encode_request_header(create_token, version, 0, "client")
            + encode_bytes(request, version),
            request_principal=encode_versioned(principal),
            client_host_address=ADDRESS,
        )

    async def code_of(node: AuthorizedNode, request: EnvelopeRequest) -> int:
        response = await forward(node, request)
        assert response.error_code == 0
        data = response.response_data or b""
        _header, end = decode_response_header(create_token, version, data)
        inner = decode(CreateDelegationTokenResponse, version, data[end:])
        assert inner.principal_name == "alice" or inner.token_requester_principal_name == "alice"
        return inner.error_code

    class Tokens:
        async def decide(
            self, _decide: object, _request: object, requester: KafkaPrincipal
        ) -> CreateDelegationTokenResponse:
            return CreateDelegationTokenResponse(principal_name=requester.name)

    async def main(node: AuthorizedNode) -> None:
        controller: Any = node.controllers._controller
        controller.tokens = Tokens()
        node.grant(MAY_FORWARD)
        assert await code_of(node, forwarded(token_authenticated=False)) == 0
        not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert await code_of(node, forwarded(token_authenticated=True)) == not_allowed
        of_bob = forwarded(token_authenticated=False, owner="bob")
        denied = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert await code_of(node, of_bob) == denied
        right = allow(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
        node.grant(MAY_FORWARD, right)
        assert await code_of(node, of_bob) == 0

    run(main)
