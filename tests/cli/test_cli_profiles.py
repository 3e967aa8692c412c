"""penstock profile: names for clusters, and which one a command connects to."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import build
from penstock.cli.profiles import ENVIRONMENT, profiles_path
from penstock.limits import MAX_PROFILES_BYTES
from tests.cli.kafka_tool import Result

# Nothing listens on these: the error names the address that a command connects to.
FIRST, SECOND = "127.0.0.1:1", "127.0.0.1:2"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    return tmp_path


def run(*words: str) -> Result:
    done = CliRunner().invoke(build("profile", "topics", "doctor"), list(words))
    return done.exit_code, done.stdout, done.stderr


def add(name: str, servers: str) -> None:
    assert run("profile", "add", name, "--bootstrap-server", servers)[0] == 0


def connects_to(*words: str) -> str:
    code, _out, err = run("topics", "list", *words)
    assert code == 1
    return err.partition("cannot connect to ")[2].partition(": ")[0]


def test_a_command_connects_to_the_option_then_the_environment_then_the_profile_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add("first", FIRST)
    add("second", SECOND)
    assert run("profile", "use", "first")[:2] == (0, "Using profile first.\n")
    assert connects_to() == FIRST
    monkeypatch.setenv(ENVIRONMENT, "second")
    assert connects_to() == SECOND
    assert connects_to("--profile", "first") == FIRST
    assert connects_to("--profile", "first", "--bootstrap-server", "127.0.0.1:3") == "127.0.0.1:3"


def test_added_profiles_are_listed_used_and_removed() -> None:
    add("b", SECOND)
    add("a", FIRST)
    assert [each["in_use"] for each in json.loads(run("profile", "list", "--json")[1])] == [
        False,
        False,
    ]
    run("profile", "use", "b")
    code, out, _err = run("profile", "list")
    assert code == 0
    assert out.splitlines()[1:] == [
        f"a     {FIRST}        -       -",
        f"b     {SECOND}        -       yes",
    ]
    assert run("profile", "remove", "b")[1] == "Removed profile b.\n"
    assert json.loads(run("profile", "list", "--json")[1]) == [
        {"name": "a", "bootstrap_server": FIRST, "config": None, "in_use": False}
    ]
    assert run("profile", "use")[1] == "Using no profile.\n"


def test_only_the_owner_may_read_the_file(home: Path) -> None:
    add("a", FIRST)
    file = home / "penstock" / "profiles.json"
    assert profiles_path() == file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["profiles.json"]


def test_the_servers_come_from_a_clients_properties(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={FIRST}\nsecurity.protocol=PLAINTEXT\n")
    assert run("profile", "add", "a", "--config", str(config))[0] == 0
    assert connects_to("--profile", "a") == FIRST


@pytest.mark.parametrize("words", [("--profile", "a"), ("--command-config",)])
def test_the_security_of_a_clients_properties_is_used(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={FIRST}\nsecurity.protocol=SASL_PLAINTEXT\n")
    assert run("profile", "add", "a", "--config", str(config))[0] == 0
    given = words if len(words) == 2 else (*words, str(config))
    code, _out, err = run("topics", "list", *given)
    assert code == 1
    assert "sasl.mechanism=GSSAPI is not supported" in err
    config.unlink()
    code, _out, err = run("topics", "list", *given)
    assert code == 1
    assert "cannot read" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["use", "missing"], "there is no profile 'missing'; there are: none"),
        (["remove", "missing"], "there is no profile 'missing'"),
        (["add", "a"], "give --bootstrap-server, or --config FILE"),
        (["add", "a", "--bootstrap-server", "host:port"], "'host:port' is not an address"),
        (["add", "../a", "--bootstrap-server", FIRST], "'../a' is not a name"),
        (["add", "a", "--config", "missing.properties"], "cannot read missing.properties"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words: list[str], reason: str) -> None:
    code, _out, err = run("profile", *words)
    assert code == 1
    assert err.startswith(f"penstock profile {words[0]}: ")
    assert reason in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"profiles": {"a": {"bootstrap_server": 1}}}', "x" * 100_000]
)
def test_a_damaged_file_is_reported_and_not_overwritten(home: Path, text: str) -> None:
    assert MAX_PROFILES_BYTES < 100_000
    file = home / "penstock" / "profiles.json"
    file.parent.mkdir()
    file.write_text(text)
    for words in (["profile", "add", "a", "--bootstrap-server", FIRST], ["topics", "list"]):
        code, _out, err = run(*words)
        assert code == 1
        assert "profiles.json" in err
    assert file.read_text() == text
    assert connects_to("--bootstrap-server", FIRST) == FIRST


def test_an_unknown_profile_fails_before_a_connection() -> None:
    code, _out, err = run("topics", "list", "--profile", "missing")
    assert (code, err) == (
        1,
        "penstock topics list: there is no profile 'missing'; there are: none\n",
    )
