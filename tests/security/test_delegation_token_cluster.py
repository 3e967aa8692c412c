"""Delegation tokens in a cluster of two brokers: one of them forwards requests to the active
controller. Kafka's clients in Python and librdkafka do not send the extension `tokenauth`, so that
the bearers are our own client, and Java's in tests/java."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import penstock
from penstock.cli.kafka import delegation_tokens as command
from penstock.client.admin.delegation_tokens import TokenWithSecret
from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.client.errors import AuthenticationFailed
from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourceType
from penstock.security.principals import KafkaPrincipal
from penstock.world import World
from penstock.world.real import run
from tests.cli.conftest import tool as tool
from tests.cli.kafka_tool import Tool

PACKAGE = "org.apache.kafka.common.security."
USERS = ("node", "alice", "bob", "eve")
ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
SECRET_KEY = "the-key-of-tokens"
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def settings() -> dict[str, str]:
    users = " ".join(f'user_{user}="{user}-secret"' for user in USERS)
    login = (
        f'{PACKAGE}plain.PlainLoginModule required username="node" password="node-secret" {users};'
    )
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:node",
        "delegation.token.secret.key": SECRET_KEY,
        "delegation.token.expiry.check.interval.ms": "100",
    }


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster(settings(), brokers=2) as cluster:
        yield cluster.bootstrap_servers


def of_user(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PACKAGE}plain.PlainLoginModule required username="{user}" '
        f'password="{user}-secret";',
    }


def of_token(token: TokenWithSecret, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{PACKAGE}scram.ScramLoginModule required "
        f'username="{token.token.token_id}" password="{token.password}" tokenauth="true";',
    }


class Clients:
    def __init__(self, world: World, servers: str) -> None:
        self._world = world
        self._servers = servers

    @contextlib.asynccontextmanager
    async def log_in(self, user: str | TokenWithSecret, **more: Any) -> AsyncIterator[Client]:
        security = of_user(user) if isinstance(user, str) else of_token(user, **more)
        async with Client(self._world, self._servers, security=security) as client:
            yield client

    async def create(self, user: str, **more: Any) -> TokenWithSecret:
        """Create a token, and wait until both brokers know it."""
        async with self.log_in(user) as client, self.log_in("node") as node:
            created = await client.admin.create_delegation_token(**more)

            async def is_known() -> bool:
                return created.token.token_id in await known(connection)

            for node_id in node.cluster.metadata.brokers:
                connection = await node.cluster.broker(node_id)
                await self.until(is_known)
            return created

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        while not await holds():
            await asyncio.sleep(0.02)


async def known(connection: Connection) -> set[str]:
    """Return the ids of the tokens that a broker knows."""
    request = DescribeDelegationTokenRequest(owners=None)
    response = await connection.call(request, DescribeDelegationTokenResponse)
    assert response.error_code == 0
    return {token.token_id for token in response.tokens}


def play(servers: str, scenario: Any) -> None:
    async def main(world: World) -> None:
        await scenario(Clients(world, servers))

    run(main)


async def code_of(call: Coroutine[Any, Any, object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await call
    return caught.value.code


def allow(operation: AclOperation, resource_type: ResourceType, name: str, principal: str) -> Acl:
    return Acl(
        resource_type,
        name,
        PatternType.LITERAL,
        principal,
        "*",
        operation,
        PermissionType.ALLOW,
    )


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_bearer_of_a_token_has_the_rights_of_its_owner(servers: str, mechanism: str) -> None:
    topic = f"of-alice-{mechanism}"

    async def scenario(clients: Clients) -> None:
        async with clients.log_in("node") as node:
            await node.admin.create_acls(
                [allow(AclOperation.CREATE, ResourceType.TOPIC, topic, "User:alice")]
            )
        token = await clients.create("alice")
        assert token.token.owner == token.token.requester == ALICE
        async with clients.log_in(token, mechanism=mechanism) as bearer:
            await bearer.admin.create_topic(topic)
            assert await code_of(bearer.admin.create_topic("of-nobody")) is (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )

    play(servers, scenario)


def test_each_broker_creates_tokens_and_refuses_bearers(servers: str) -> None:
    """One of them is the active controller, the other one forwards the requests with the
    principal."""

    async def scenario(clients: Clients) -> None:
        token = await clients.create("alice")
        async with clients.log_in("alice") as alice, clients.log_in(token) as bearer:
            for node_id in sorted(alice.cluster.metadata.brokers):
                connection = await alice.cluster.broker(node_id)
                created = await connection.call(
                    CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse
                )
                assert (created.error_code, created.principal_name) == (0, "alice")
                connection = await bearer.cluster.broker(node_id)
                refused = await connection.call(
                    CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse
                )
                assert refused.error_code == NOT_ALLOWED
                assert (refused.principal_name, refused.issue_timestamp_ms) == ("alice", -1)
                renewal = await connection.call(
                    RenewDelegationTokenRequest(hmac=token.hmac), RenewDelegationTokenResponse
                )
                assert (renewal.error_code, renewal.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
            admin = bearer.admin
            assert await code_of(admin.expire_delegation_token(token.hmac)) is NOT_ALLOWED
            assert await code_of(admin.describe_delegation_tokens()) is NOT_ALLOWED

    play(servers, scenario)


def test_a_token_of_another_owner_needs_create_tokens(servers: str) -> None:
    async def scenario(clients: Clients) -> None:
        assert await code_of(clients.create("bob", owner=ALICE)) is (
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        )
        async with clients.log_in("node") as node:
            right = allow(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:alice", "User:bob")
            await node.admin.create_acls([right])
        token = await clients.create("bob", owner=ALICE)
        assert (token.token.owner, token.token.requester) == (ALICE, BOB)
        async with clients.log_in("bob") as bob:
            # As in Kafka the requester is neither owner nor renewer.
            assert await code_of(bob.admin.renew_delegation_token(token.hmac)) is (
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            )

    play(servers, scenario)


def test_who_sees_which_tokens(servers: str) -> None:
    async def scenario(clients: Clients) -> None:
        own = await clients.create("eve", renewers=[BOB])
        async with clients.log_in("eve") as eve, clients.log_in("bob") as bob:
            assert [each.hmac for each in await eve.admin.describe_delegation_tokens()] == [
                own.hmac
            ]
            seen = await bob.admin.describe_delegation_tokens([BOB])
            assert own in seen, "a renewer"
            assert await eve.admin.describe_delegation_tokens([ALICE]) == []
            assert await eve.admin.describe_delegation_tokens([]) == []
            other = await clients.create("alice")
            async with clients.log_in("node") as node:
                rights = [
                    allow(
                        AclOperation.DESCRIBE,
                        ResourceType.DELEGATION_TOKEN,
                        other.token.token_id,
                        "User:eve",
                    )
                ]
                await node.admin.create_acls(rights)
                all_tokens = await node.admin.describe_delegation_tokens()
                assert {own.hmac, other.hmac} <= {each.hmac for each in all_tokens}

            async def sees_one_more() -> bool:
                return await eve.admin.describe_delegation_tokens([ALICE]) == [other]

            await clients.until(sees_one_more)
            async with clients.log_in("node") as node:
                right = allow(
                    AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice", "User:eve"
                )
                await node.admin.create_acls([right])
            another = await clients.create("alice")

            async def sees_all() -> bool:
                return another in await eve.admin.describe_delegation_tokens([ALICE])

            await clients.until(sees_all)

    play(servers, scenario)


def test_a_token_is_renewed_and_expires(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    created: list[TokenWithSecret] = []

    async def scenario(clients: Clients) -> None:
        token = await clients.create("alice", renewers=[BOB], max_lifetime_ms=3_600_000)
        created.append(token)
        async with clients.log_in("bob") as bob, clients.log_in("alice") as alice:
            expires_ms = await bob.admin.renew_delegation_token(token.hmac, 60_000)
            assert expires_ms <= token.token.max_ms
            assert await code_of(alice.admin.renew_delegation_token(b"other")) is (
                ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            )
            await alice.admin.expire_delegation_token(token.hmac)

            async def is_gone() -> bool:
                return token.hmac not in {
                    each.hmac for each in await alice.admin.describe_delegation_tokens()
                }

            await clients.until(is_gone)

            async def is_refused() -> bool:
                # The other broker may apply the record later.
                try:
                    async with clients.log_in(token):
                        return False
                except AuthenticationFailed:
                    return True

            await clients.until(is_refused)
            # The active controller removes tokens that have expired.
            short = await alice.admin.create_delegation_token(max_lifetime_ms=1)

            async def is_removed() -> bool:
                return short.hmac not in {
                    each.hmac for each in await alice.admin.describe_delegation_tokens()
                }

            await clients.until(is_removed)

    with caplog.at_level(logging.DEBUG, "penstock"):
        play(servers, scenario)
    text = caplog.text
    assert "CreateDelegationToken" in text
    (token,) = created
    for secret in (SECRET_KEY, token.password, token.hmac.hex(), repr(token.hmac)[2:30]):
        assert secret not in text


def test_librdkafka_does_not_say_that_it_has_a_token(servers: str) -> None:
    """Without the extension `tokenauth` the id is the name of a user, which does not exist."""

    async def scenario(clients: Clients) -> None:
        token = await clients.create("alice")
        admin = AdminClient(
            {
                "bootstrap.servers": servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": token.token.token_id,
                "sasl.password": token.password,
            }
        )
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)

    play(servers, scenario)


def test_kafka_delegation_tokens(servers: str, tool: Tool, tmp_path: Path) -> None:
    config = tmp_path / "alice.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in of_user("alice").items()))

    def call(*words: str) -> tuple[int, str, str]:
        to = ("--bootstrap-server", servers, "--command-config", str(config))
        return tool(command.run, *to, *words)

    words = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    lines = out.split("\n")
    assert lines[0] == (
        "Calling create token operation with renewers :[User:bob] , max-life-time-period :-1"
    )
    token_id = lines[1].removeprefix("Created delegation token with tokenId : ")
    assert lines[2] == ""
    assert lines[3].split() == [
        "TOKENID",
        "HMAC",
        "OWNER",
        "REQUESTER",
        "RENEWERS",
        "ISSUEDATE",
        "EXPIRYDATE",
        "MAXDATE",
    ]
    found, secret, owner, requester, renewers, *_dates = lines[5].split()
    assert (found, owner, requester, renewers) == (
        token_id,
        "User:alice",
        "User:alice",
        "[User:bob]",
    )
    code, out, _err = call("--describe", "--owner-principal", "User:bob")
    assert code == 0
    assert out.startswith("Calling describe token operation for owners: [User:bob]\nTotal number")
    assert token_id in out
    code, out, _err = call("--renew", "--hmac", secret, "--renew-time-period", "60000")
    assert code == 0
    assert "Completed renew operation. New expiry date : 20" in out
    code, out, _err = call("--expire", "--hmac", secret, "--expiry-time-period=-1")
    assert code == 0
    assert "Completed expire operation. New expiry date : 20" in out
    code, _out, err = call("--renew", "--hmac", secret, "--renew-time-period", "-1")
    assert code == 1
    assert err == (
        "org.apache.kafka.common.errors.DelegationTokenNotFoundException: Delegation Token is not "
        "found on server.\n"
    )
    code, _out, err = call("--renew", "--create")
    assert code == 1
    assert err.startswith("Command must include exactly one action")
    code, _out, err = call("--create")
    assert code == 1
    assert err.startswith('Missing required argument "[max-life-time-period]"')
