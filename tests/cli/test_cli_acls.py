"""kafka-acls.sh with the output of Apache Kafka, and penstock acls, against a real broker with an
authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import penstock
from penstock.cli import build
from penstock.cli.kafka import acls
from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from tests.cli.kafka_tool import Tool


@pytest.fixture(scope="module")
def authorized() -> Iterator[str]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with penstock.Cluster(settings) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def kafka_acls(tool: Tool, authorized: str) -> Tool:
    return lambda *words: tool(acls.run, "--bootstrap-server", authorized, *words)


def pattern(kind: str, name: str, pattern_type: str = "LITERAL") -> str:
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern_type})"


def entry(principal: str, operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return (
        f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"
    )


def test_entries_are_added_listed_and_removed(kafka_acls: Tool) -> None:
    of_topic = ("--topic", "orders", "--allow-principal", "User:alice", "--operation", "Read")
    orders = pattern("TOPIC", "orders")
    assert kafka_acls("--add", *of_topic) == (
        0,
        f"Adding ACLs for resource `{orders}`: \n \t{entry('User:alice', 'READ')}\n\n",
        "",
    )
    assert kafka_acls("--add", *of_topic) == (
        0,
        f"Acl (pattern={orders}, entry={entry('User:alice', 'READ')}) already exists.\n",
        "",
    )
    listed = f"Current ACLs for resource `{orders}`:\n\t{entry('User:alice', 'READ')}\n\n"
    assert kafka_acls("--list", "--topic", "orders") == (0, listed, "")
    assert kafka_acls("--list", "--principal", "User:alice") == (
        0,
        f"ACLs for principal `User:alice`\n{listed}",
        "",
    )
    assert kafka_acls("--list", "--principal", "User:bob")[1] == "ACLs for principal `User:bob`\n"
    assert kafka_acls("--remove", "--topic", "orders", "--force") == (0, "", "")
    assert kafka_acls("--list") == (0, "", "")


def test_the_roles_of_producers_and_consumers(kafka_acls: Tool) -> None:
    words = ("--allow-principal", "User:app", "--topic", "t")
    added = kafka_acls("--add", "--producer", "--idempotent", "--transactional-id", "x", *words)
    assert added[0] == 0
    code, out, _err = kafka_acls("--list")
    assert code == 0
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert entry("User:app", operation) in out
    assert pattern("TRANSACTIONAL_ID", "x") in out
    assert (
        f"{pattern('CLUSTER', 'kafka-cluster')}`:\n\t{entry('User:app', 'IDEMPOTENT_WRITE')}" in out
    )
    assert kafka_acls("--add", "--consumer", "--group", "g", *words)[0] == 0
    code, out, _err = kafka_acls("--list", "--group", "g")
    assert f"{pattern('GROUP', 'g')}`:\n\t{entry('User:app', 'READ')}" in out
    for resource in (
        ("--topic", "t"),
        ("--group", "g"),
        ("--cluster",),
        ("--transactional-id", "x"),
    ):
        assert kafka_acls("--remove", *resource, "--force")[0] == 0
    assert kafka_acls("--list") == (0, "", "")


def test_patterns_hosts_and_denials(kafka_acls: Tool) -> None:
    deny = ("--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--operation", "write")
    prefixed = ("--topic", "team-", "--resource-pattern-type", "prefixed")
    assert kafka_acls("--add", *prefixed, *deny)[0] == 0
    listed = kafka_acls("--list", "--topic", "team-a", "--resource-pattern-type", "match")[1]
    assert entry("User:eve", "WRITE", "DENY", "10.0.0.1") in listed
    assert pattern("TOPIC", "team-", "PREFIXED") in listed
    assert kafka_acls("--list", "--topic", "team-") == (0, "", ""), "literal is the default"
    assert kafka_acls("--remove", *prefixed, *deny, "--force")[0] == 0
    assert kafka_acls("--list") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "exactly one action"),
        (("--add", "--list"), "exactly one action"),
        (("--add", "--topic", "t"), "--allow-principal, --deny-principal"),
        (("--add", "--allow-principal", "User:a"), "at least one resource"),
        (("--add", "--topic", "t", "--allow-principal", "alice"), "principalType:principalName"),
        (
            ("--add", "--topic", "t", "--allow-principal", "User:a", "--operation", "Fly"),
            "Invalid operation: Fly",
        ),
        (
            ("--add", "--group", "g", "--allow-principal", "User:a", "--operation", "Write"),
            "ResourceType GROUP only supports operations",
        ),
        (
            (
                "--add",
                "--topic",
                "t",
                "--allow-principal",
                "User:a",
                "--resource-pattern-type",
                "any",
            ),
            "not valid when adding acls",
        ),
        (("--list", "--resource-pattern-type", "odd"), "Unknown resource-pattern-type: odd"),
        (("--add", "--producer", "--allow-principal", "User:a"), "you must specify a --topic"),
    ],
)
def test_wrong_options_are_refused(kafka_acls: Tool, words: tuple[str, ...], reason: str) -> None:
    code, _out, err = kafka_acls(*words)
    assert code == 1
    assert reason in err


def test_a_broker_without_an_authorizer_refuses(tool: Tool, bootstrap: str) -> None:
    code, out, _err = tool(acls.run, "--bootstrap-server", bootstrap, "--list")
    assert code == 1
    assert "No Authorizer is configured on the broker" in out


def penstock_acls(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = build("acls")(["acls", *words], standalone_mode=False) or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_penstock_acls(capsys: pytest.CaptureFixture[str], authorized: str) -> None:
    server = ("--bootstrap-server", authorized)
    created = penstock_acls(
        capsys,
        *("create", "User:alice", "--operation", "read", "--operation", "describe-configs"),
        *("--topic", "pen-", "--prefixed", "--json", *server),
    )
    assert created[0] == 0, created
    rows = json.loads(created[1])
    assert [row["operation"] for row in rows] == ["READ", "DESCRIBE_CONFIGS"]
    assert {row["pattern"] for row in rows} == {"PREFIXED"}
    listed = penstock_acls(capsys, "list", "--topic", "pen-1", "--matching", "--json", *server)
    assert json.loads(listed[1]) == rows
    assert (
        "There are no such entries."
        in penstock_acls(capsys, "list", "--topic", "pen-1", *server)[1]
    )
    table = penstock_acls(capsys, "list", "--principal", "User:alice", *server)[1]
    assert "User:alice  *     ALLOW       READ" in table
    deleted = penstock_acls(
        capsys, "delete", "--principal", "User:alice", "--operation", "read", "--yes", *server
    )
    assert "Deleted 1 entries." in deleted[1]
    left = json.loads(penstock_acls(capsys, "list", "--json", *server)[1])
    assert [row["operation"] for row in left] == ["DESCRIBE_CONFIGS"]
    penstock_acls(capsys, "delete", "--yes", *server)
    assert json.loads(penstock_acls(capsys, "list", "--json", *server)[1]) == []


def test_hosts_are_written_as_the_authorizer_compares_them(
    capsys: pytest.CaptureFixture[str], authorized: str, kafka_acls: Tool
) -> None:
    server = ("--bootstrap-server", authorized)
    of_topic = ("--operation", "read", "--topic", "hosts")
    for host in ("::1", "::ffff:10.0.0.1", "*"):
        words = ("create", "User:eve", *of_topic, "--deny", "--host", host, *server)
        assert penstock_acls(capsys, *words)[0] == 0
    kafka_acls("--add", *of_topic, "--deny-principal", "User:eve", "--deny-host", "::1")
    listed = penstock_acls(capsys, "list", "--topic", "hosts", "--json", *server)[1]
    assert {row["host"] for row in json.loads(listed)} == {
        *("0:0:0:0:0:0:0:1", "10.0.0.1", "*", "::1")
    }
    deleted = penstock_acls(capsys, "delete", "--host", "::1", "--yes", *server)[1]
    assert "Deleted 2 entries." in deleted
    penstock_acls(capsys, "delete", "--topic", "hosts", "--yes", *server)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("create", "alice", "--operation", "read", "--topic", "t"), "is no principal"),
        (("create", "User:a", "--operation", "fly", "--topic", "t"), "there is no operation 'fly'"),
        (("create", "User:a", "--operation", "write", "--group", "g"), "GROUP has no operation"),
        (("create", "User:a", "--operation", "read"), "name a --topic"),
        (
            ("create", "User:a", "--operation", "read", "--topic", "t", "--host", "db.example"),
            "'db.example' is no IP address",
        ),
    ],
)
def test_penstock_acls_refuses(
    capsys: pytest.CaptureFixture[str], authorized: str, words: tuple[str, ...], reason: str
) -> None:
    code, _out, err = penstock_acls(capsys, *words, "--bootstrap-server", authorized)
    assert code == 1
    assert reason in err
