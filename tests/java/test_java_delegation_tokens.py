"""Delegation tokens: Kafka's command and clients create, use, renew and expire tokens of Penstock,
and Penstock's answers are those of Apache Kafka.

Run by `make test-java`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.kafka import delegation_tokens as command
from penstock.protocol.apis import response_class
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.protocol.schema import fields_of
from tests.java.kafka_node import SMALL, KafkaNode
from tests.java.kafka_tools import CONSUMER, PRODUCER, TOPICS, Tools
from tests.java.test_java_authorization import connect
from tests.security.test_authorization_clients import SETTINGS

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("cluster")]

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
PACKAGE = "org.apache.kafka.common.security"
KEY = "the-key-of-tokens"
DAY_MS = 86_400_000
# Timestamps that two servers give a moment apart.
CLOSE_MS = 60_000
PROPAGATION_S = 10.0

Renewer = CreateDelegationTokenRequest.Renewer
Owner = DescribeDelegationTokenRequest.Owner

SECURED = {
    **SETTINGS,
    "super.users": f"{SETTINGS['super.users']};User:broker",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": KEY,
}
# Kafka needs a login for each mechanism that is enabled, and SCRAM is not compared here.
OF_KAFKA = {**SECURED, "sasl.enabled.mechanisms": "PLAIN"}
WITHOUT_KEY = {name: value for name, value in OF_KAFKA.items() if "secret.key" not in name}
SMALL_OF_PENSTOCK = {name: value for name, value in SMALL.items() if not name.startswith("share.")}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), OF_KAFKA)
    node.start()
    try:
        yield node.bootstrap
    finally:
        node.kill()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({**SMALL_OF_PENSTOCK, **SECURED}) as cluster:
        yield cluster.bootstrap_servers


class Asking:
    """Sends requests of users, and keeps the secret of the token that was created last."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.secret = b""

    def ask(self, user: str, request: Any, version: int) -> Any:
        key = {
            CreateDelegationTokenRequest: 38,
            RenewDelegationTokenRequest: 39,
            ExpireDelegationTokenRequest: 40,
            DescribeDelegationTokenRequest: 41,
            ElectLeadersRequest: 43,
            AlterPartitionReassignmentsRequest: 45,
        }[type(request)]
        with connect(self._bootstrap, user) as connection:
            response: Any = connection.request(request, version, response_class(key))
        if isinstance(response, CreateDelegationTokenResponse) and not response.error_code:
            expected = hmac.new(KEY.encode(), response.token_id.encode(), hashlib.sha512).digest()
            assert response.hmac == expected
            assert re.fullmatch(r"[-_A-Za-z0-9]{22}", response.token_id)
            self.secret = bytes(response.hmac)
            self.until(lambda _token: True)
        return response

    def until(self, holds: Callable[[Any], bool]) -> None:
        """Wait until the broker shows the last token in a state. A broker of Kafka does so a moment
        after the response."""
        deadline = time.monotonic() + PROPAGATION_S
        every = DescribeDelegationTokenRequest(owners=None)
        while not any(
            token.hmac == self.secret and holds(token)
            for token in self.ask("admin", every, 3).tokens
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def shown(value: Any, now_ms: int) -> Any:
    """Return an answer without what differs from token to token: ids, secrets and moments."""
    if isinstance(value, tuple):
        return tuple(shown(each, now_ms) for each in value)
    if not hasattr(type(value), "__kafka_fields__"):
        return value
    found: dict[str, Any] = {}
    for field in fields_of(type(value)):
        part = getattr(value, field.name)
        if field.name in ("token_id", "hmac"):
            part = bool(part)
        elif "timestamp" in field.name and part > 0:
            part = round((part - now_ms) / CLOSE_MS)
        elif field.name == "error_message":
            part = None
        found[field.name] = shown(part, now_ms)
    return found


def create(version: int = 3, user: str = "alice", **fields: Any) -> Callable[[Asking], Any]:
    request = CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields})
    return lambda asking: asking.ask(user, request, version)


def renew(user: str, period_ms: int, secret: bytes | None = None) -> Callable[[Asking], Any]:
    return lambda asking: asking.ask(
        user,
        RenewDelegationTokenRequest(hmac=secret or asking.secret, renew_period_ms=period_ms),
        2,
    )


def expire(user: str, period_ms: int, secret: bytes | None = None) -> Callable[[Asking], Any]:
    return lambda asking: asking.ask(
        user,
        ExpireDelegationTokenRequest(hmac=secret or asking.secret, expiry_time_period_ms=period_ms),
        2,
    )


def describe(user: str, owners: tuple[Owner, ...] | None) -> Callable[[Asking], Any]:
    def ask(asking: Asking) -> Any:
        response = asking.ask(user, DescribeDelegationTokenRequest(owners=owners), 3)
        # Tokens of other steps may be there, in any order.
        found = {repr(shown(token, int(time.time() * 1000))) for token in response.tokens}
        return response.error_code, sorted(found)

    return ask


BOB = Renewer(principal_type="User", principal_name="bob")
STEPS: dict[str, Callable[[Asking], Any]] = {
    "create": create(),
    "create v1": create(1),
    "create with renewers": create(renewers=(BOB,)),
    "renew by owner": renew("alice", -1),
    "renew by renewer": renew("bob", 120_000),
    "renew too long": renew("alice", 30 * DAY_MS),
    "renew by another": renew("eve", -1),
    "expire by another": expire("eve", -1),
    "describe by renewer": describe("bob", None),
    "describe by another": describe("eve", None),
    "describe as super user": describe("admin", None),
    "describe owners": describe("alice", (Owner(principal_type="User", principal_name="alice"),)),
    "describe no owners": describe("alice", ()),
    "expire later": expire("alice", 30 * DAY_MS),
    "expire now": expire("alice", 0),
    "renew expired": renew("alice", -1),
    "expire expired": expire("alice", 0),
    "remove expired": expire("alice", -1),
    "unknown renewal": renew("alice", -1, b"unknown"),
    "unknown expiry": expire("alice", -1, b"unknown"),
    "create short": create(max_lifetime_ms=1_000),
    "create for another": create(owner_principal_type="User", owner_principal_name="bob"),
    "create for another as super user": create(
        user="admin", owner_principal_type="User", owner_principal_name="bob"
    ),
    "renewer of another type": create(
        renewers=(Renewer(principal_type="Group", principal_name="g"),)
    ),
}


def answers(
    bootstrap: str,
    steps: dict[str, Callable[[Asking], Any]],
    awaited: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`awaited` are the answers of Penstock: Kafka describes a change a moment later."""
    asking = Asking(bootstrap)
    found: dict[str, Any] = {}
    for name, step in steps.items():
        if name == "renew expired":
            asking.until(lambda token: token.expiry_timestamp < int(time.time() * 1000))
        deadline = time.monotonic() + PROPAGATION_S
        found[name] = shown(step(asking), int(time.time() * 1000))
        while (
            awaited is not None
            and name.startswith("describe")
            and found[name] != awaited[name]
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
            found[name] = shown(step(asking), int(time.time() * 1000))
    return found


def test_the_answers_are_those_of_kafka(kafka: str, servers: str) -> None:
    found = answers(servers, STEPS)
    expected = answers(kafka, STEPS, found)
    for name in STEPS:
        assert found[name] == expected[name], name


def test_denied_elections_and_reassignments_are_answered_as_by_kafka(
    kafka: str, servers: str
) -> None:
    partition = AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=3, replicas=(1,))
    moved = AlterPartitionReassignmentsRequest.Topic(name="t", partitions=(partition,))
    elected = ElectLeadersRequest.TopicPartition(topic="t", partitions=(0, 3))
    steps = {
        f"elect v{version}": lambda asking, version=version: asking.ask(
            "alice", ElectLeadersRequest(topic_partitions=(elected,)), version
        )
        for version in (0, 1, 2)
    } | {
        "reassign": lambda asking: asking.ask(
            "alice", AlterPartitionReassignmentsRequest(topics=(moved,)), 0
        )
    }
    expected, found = answers(kafka, steps), answers(servers, steps)
    for name in steps:
        assert found[name] == expected[name], name


def test_without_a_key_tokens_are_refused_as_by_kafka(tmp_path: Path) -> None:
    steps = {
        "create": create(),
        "renew": renew("alice", -1, b"x"),
        "expire": expire("alice", -1, b"x"),
        "describe": describe("alice", None),
    }
    node = KafkaNode(tmp_path / "kafka", WITHOUT_KEY)
    node.start()
    try:
        expected = answers(node.bootstrap, steps)
    finally:
        node.kill()
    with penstock.Cluster({**SMALL_OF_PENSTOCK, **WITHOUT_KEY}) as cluster:
        assert answers(cluster.bootstrap_servers, steps) == expected
    assert expected["describe"][0] == 61


def properties(path: Path, module: str, mechanism: str, options: str) -> str:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={PACKAGE}.{module} required {options};\n"
    )
    return str(path)


def of_user(directory: Path, user: str) -> str:
    return properties(
        directory / f"{user}.properties",
        "plain.PlainLoginModule",
        "PLAIN",
        f'username="{user}" password="{user}-secret"',
    )


def test_kafkas_command_and_clients_use_tokens(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools, admin = Tools(servers), of_user(tmp_path, "admin")
    create_words = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    printed = tools(TOKENS, *create_words, "--command-config", admin)
    row = printed.rstrip("\n").split("\n")[-1].split()
    token_id, secret = row[:2]
    assert row[2:5] == ["User:admin", "User:admin", "[User:bob]"]
    # Ours prints the same.
    ours = ["--bootstrap-server", servers, "--command-config", admin]
    assert command.run([*ours, *create_words]) == 0
    assert masked(capsys.readouterr().out) == masked(printed)
    described = ("--describe", "--owner-principal", "User:bob", "--command-config", admin)
    java_described = tools(TOKENS, *described)
    assert command.run([*ours, "--describe", "--owner-principal", "User:bob"]) == 0
    # Tokens may be in another order.
    assert sorted(capsys.readouterr().out.split("\n")) == sorted(java_described.split("\n"))
    assert secret in java_described

    bearer = properties(
        tmp_path / "token.properties",
        "scram.ScramLoginModule",
        "SCRAM-SHA-512",
        f'username="{token_id}" password="{secret}" tokenauth="true"',
    )
    tools(TOPICS, "--create", "--topic", "by-token", "--command-config", bearer)
    tools(PRODUCER, "--topic", "by-token", "--command-config", bearer, stdin="hello\n")
    options = ("--from-beginning", "--max-messages", "1", "--group", "by-token")
    read = tools(CONSUMER, "--topic", "by-token", *options, "--command-config", bearer)
    assert read.startswith("hello")
    refused = tools.run(TOKENS, *create_words, "--command-config", bearer)
    assert refused.code == 1
    assert "UnsupportedByAuthenticationException" in refused.stderr
    renewal = ("--renew", "--hmac", secret, "--renew-time-period", "3600000")
    bob = of_user(tmp_path, "bob")
    assert "Completed renew operation" in tools(TOKENS, *renewal, "--command-config", bob)
    expiry = ("--expire", "--hmac", secret, "--expiry-time-period", "-1")
    assert "Completed expire operation" in tools(TOKENS, *expiry, "--command-config", bob)
    again = tools.run(TOPICS, "--list", "--command-config", bearer)
    assert again.code != 0
    assert "Authentication failed" in again.stdout + again.stderr
    missing = tools.run(TOKENS, *renewal, "--command-config", bob)
    assert "DelegationTokenNotFoundException" in missing.stderr
    assert command.run([*ours, *renewal]) == 1
    assert capsys.readouterr().err.strip() in missing.stderr


def masked(printed: str) -> str:
    """Replace ids, secrets and dates."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "DATE", printed)
    return re.sub(r"\b[-_A-Za-z0-9]{22}(?= |\n)|[A-Za-z0-9+/]{86}==", "SECRET", text)
