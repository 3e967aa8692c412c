"""penstock quotas, and kafka-configs.sh for users, clients and addresses with the output of Apache
Kafka, against a real broker."""

from __future__ import annotations

import json

import pytest

from penstock.cli import build
from penstock.cli.kafka import configs
from penstock.cli.kafka.configs_quotas import java_double
from tests.cli.kafka_tool import Tool


@pytest.fixture
def kafka_configs(tool: Tool, bootstrap: str) -> Tool:
    return lambda *words: tool(configs.run, "--bootstrap-server", bootstrap, *words)


@pytest.fixture
def quotas(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Tool:
    def run(*words: str) -> tuple[int, str, str]:
        app = build("quotas")
        code = 0
        try:
            app(["quotas", *words, "--bootstrap-server", bootstrap], standalone_mode=True)
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


BROKER = ("--entity-type", "brokers", "--entity-name", "1")
ALICE = ("--entity-type", "users", "--entity-name", "alice")
APP = ("--entity-type", "clients", "--entity-name", "app")
DEFAULT_USER = ("--entity-type", "users", "--entity-default")


def test_quotas_are_added_described_and_deleted(kafka_configs: Tool) -> None:
    add = ("--add-config", "producer_byte_rate=1024,consumer_byte_rate=20000000")
    assert kafka_configs("--alter", *ALICE, *add) == (
        0,
        "Completed updating config for user alice.\n",
        "",
    )
    assert kafka_configs("--describe", *ALICE) == (
        0,
        "Quota configs for user-principal 'alice' are consumer_byte_rate=2.0E7, "
        "producer_byte_rate=1024.0\n",
        "",
    )
    assert kafka_configs(
        "--alter", *ALICE, "--delete-config", "producer_byte_rate,consumer_byte_rate"
    ) == (0, "Completed updating config for user alice.\n", "")
    assert kafka_configs("--describe", *ALICE) == (0, "", "")


def test_pairs_and_defaults(kafka_configs: Tool) -> None:
    rate = ("--add-config", "request_percentage=12.5")
    assert kafka_configs("--alter", *DEFAULT_USER, *APP, *rate) == (
        0,
        "Completed updating default config for users in the cluster.\n",
        "",
    )
    assert kafka_configs("--alter", *DEFAULT_USER, *rate)[0] == 0
    assert kafka_configs("--alter", "--client-defaults", *rate)[1] == (
        "Completed updating default config for clients in the cluster.\n"
    )
    both = ("--entity-type", "users", "--entity-type", "clients")
    assert kafka_configs("--describe", *both)[1] == (
        "Quota configs for the default user-principal, client-id 'app' are "
        "request_percentage=12.5\n"
    )
    assert kafka_configs("--describe", "--user-defaults")[1] == (
        "Quota configs for the default user-principal are request_percentage=12.5\n"
    )
    assert kafka_configs("--describe", "--entity-type", "clients")[1] == (
        "Quota configs for the default client-id are request_percentage=12.5\n"
    )
    remove = ("--delete-config", "request_percentage")
    for entity in ((*DEFAULT_USER, *APP), DEFAULT_USER, ("--client-defaults",)):
        assert kafka_configs("--alter", *entity, *remove)[0] == 0


def test_addresses(kafka_configs: Tool) -> None:
    entity = ("--entity-type", "ips", "--entity-name", "10.9.8.7")
    add = ("--add-config", "connection_creation_rate=5")
    assert kafka_configs("--alter", *entity, *add) == (
        0,
        "Completed updating config for ip 10.9.8.7.\n",
        "",
    )
    assert kafka_configs("--describe", "--entity-type", "ips")[1] == (
        "Quota configs for ip '10.9.8.7' are connection_creation_rate=5.0\n"
    )
    assert kafka_configs("--alter", *entity, "--delete-config", "connection_creation_rate")[0] == 0


def test_scram_credentials_of_users(kafka_configs: Tool) -> None:
    bob = ("--entity-type", "users", "--entity-name", "bob")
    secret = "SCRAM-SHA-512=[iterations=8192,password=bob-secret]"
    assert kafka_configs("--alter", *bob, "--add-config", secret) == (
        0,
        "Completed updating config for user bob.\n",
        "",
    )
    shown = "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=8192\n"
    assert kafka_configs("--describe", *bob) == (0, shown, "")
    assert kafka_configs("--alter", *bob, "--delete-config", "SCRAM-SHA-512")[0] == 0
    assert kafka_configs("--describe", *bob) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (*ALICE, "--add-config", "SCRAM-SHA-512=[iterations=17000,password=hunter2]"),
            "Too many iterations",
        ),
        (
            (*ALICE, "--add-config", "SCRAM-SHA-512=[iterations=5,password=hunter2]"),
            "Iterations 5 is less than the minimum 4096 required for SCRAM-SHA-512",
        ),
        ((*ALICE, "--add-config", "SCRAM-SHA-512=[hunter2]"), "Invalid credential property"),
        ((*ALICE, "--add-config", "SCRAM-SHA-512=[password=]"), "Password must not be empty"),
        (
            (*ALICE, "--add-config", "SCRAM-SHA-256=[password=hunter2],producer_byte_rate=1"),
            "Cannot alter both quota and SCRAM credential configs simultaneously",
        ),
        (
            (*DEFAULT_USER, "--add-config", "SCRAM-SHA-256=[password=hunter2]"),
            "The use of --entity-default or --user-defaults is not allowed",
        ),
        (
            (*APP, "--add-config", "SCRAM-SHA-256=[password=hunter2]"),
            "Only quota configs can be added for 'clients'",
        ),
        ((*ALICE, "--add-config", "retention.ms=1"), "Unexpected config names: Set(retention.ms)"),
        ((*ALICE, "--add-config", "producer_byte_rate=fast"), "Cannot parse quota configuration"),
        ((*ALICE, "--add-config", "producer_byte_rate=-5"), "must be greater than 0"),
        ((*ALICE, "--add-config", "request_percentage=inf"), "must be a number"),
        (
            (*ALICE, "--delete-config", "producer_byte_rate"),
            "Invalid config(s): producer_byte_rate",
        ),
        (
            ("--entity-type", "ips", "--entity-name", "nowhere", "--add-config", "x=1"),
            "must be a valid IP or resolvable host, but it is: nowhere",
        ),
        (
            (*BROKER, "--add-config", "delegation.token.secret.key=hunter2"),
            "Cannot update these configs dynamically: Set(delegation.token.secret.key)",
        ),
        (
            (*BROKER, "--add-config", "sasl.jaas.config=[hunter2],super.users=User:eve"),
            "args '--bootstrap-server",
        ),
        (
            ("--entity-type", "users", "--entity-type", "ips", "--add-config", "x=1"),
            "Only 'users' and 'clients' entity types may be specified together",
        ),
        (
            (*ALICE, "--entity-type", "clients", "--add-config", "producer_byte_rate=1"),
            "An entity name must be specified for every entity type",
        ),
        (
            ("--entity-type", "users", "--add-config", "producer_byte_rate=1"),
            "An entity-name or default entity must be specified with --alter of users",
        ),
    ],
)
def test_what_is_refused_and_no_password_is_shown(
    kafka_configs: Tool, words: tuple[str, ...], message: str
) -> None:
    code, out, err = kafka_configs("--alter", *words)
    assert code == 1
    assert message in err
    assert "hunter2" not in out + err


def test_penstock_quotas(quotas: Tool) -> None:
    words = ("--user", "carol", "--client-id", "etl")
    code, out, _err = quotas("set", *words, "producer_byte_rate=1048576", "request_percentage=0.5")
    assert code == 0
    assert out.splitlines() == [
        "USER   CLIENT ID  IP  QUOTA               VALUE",
        "carol  etl        -   producer_byte_rate  1048576",
        "carol  etl        -   request_percentage  0.5",
    ]
    assert quotas("list", "--user", "carol")[1] == out
    listed = json.loads(quotas("list", "--client-id", "etl", "--json")[1])
    assert listed == [
        {
            "entity": {"client-id": "etl", "user": "carol"},
            "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 0.5},
        }
    ]
    assert quotas("list", "--user", "nobody")[1] == "There are no such quotas.\n"
    code, out, _err = quotas("remove", *words, "request_percentage", "--yes")
    assert (code, out.splitlines()[-1]) == (0, "Removed 1 quotas.")
    assert quotas("remove", *words, "--yes")[0] == 0
    assert quotas("list", "--user", "carol")[1] == "There are no such quotas.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "producer_byte_rate=1"), "name a --user, a --client-id, both, or an --ip"),
        (("set", "--user", "a", "rate=1"), "there is no quota 'rate' here"),
        (("set", "--default-ip", "producer_byte_rate=1"), "give one of connection_creation_rate"),
        (("set", "--user", "a", "producer_byte_rate"), "give producer_byte_rate=NUMBER"),
        (("set", "--user", "a", "producer_byte_rate=0"), "must be greater than 0"),
        (("set", "--user", "a", "--default-user", "producer_byte_rate=1"), "not both"),
        (("list", "--ip", "1.2.3.4", "--user", "a"), "IP filter component should not be used"),
    ],
)
def test_penstock_quotas_refuses(quotas: Tool, words: tuple[str, ...], message: str) -> None:
    code, _out, err = quotas(*words)
    assert code != 0
    assert message in err


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024.0"),
        (0.5, "0.5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (1e300, "1.0E300"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_are_printed_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text
