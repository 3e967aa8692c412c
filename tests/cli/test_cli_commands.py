"""What all penstock commands share: examples, JSON, confirmation, completion and exit codes."""

from __future__ import annotations

import io
import json
import shlex
import sys
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from penstock.cli import COMMANDS, build
from penstock.cli.confirmation import confirm
from penstock.cli.examples import EXAMPLES
from penstock.cli.output import print_json, print_line, print_table
from penstock.cli.session import fail

ALL = {f"{word} {name}".strip() for word, names in COMMANDS.items() for name in names}
# Its examples are in its description.
OWN_EXAMPLES = {"doctor"}
DESTRUCTIVE = [
    "topics delete t",
    "groups delete g",
    "groups reset-offsets g --all-topics --to-latest",
    "brokers remove 4",
    "quorum remove 3",
    "transactions abort id",
    "transactions abort --topic t --partition 0 --start-offset 1",
    "transactions end sink",
    "elect-leaders --unclean",
]


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == ALL - OWN_EXAMPLES


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_examples_of_a_command_parse_and_are_in_its_help(name: str) -> None:
    app = build(name.split()[0])
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    for example in EXAMPLES[name]:
        assert example in shown.stdout
        _program, *words = shlex.split(example.partition(" < ")[0])
        parse(get_command(app), words)


def parse(command: Any, words: list[str]) -> None:
    """Parse the words as the shell gives them, without running the command."""
    context = command.make_context("penstock", list(words))
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command, words = command.commands[word], words[1:]
        context = command.make_context(word, list(words), parent=context)


def test_the_help_of_penstock_lists_the_exit_codes() -> None:
    assert "130  interrupted" in CliRunner().invoke(build(), ["--help"]).stdout


@pytest.mark.parametrize("words", DESTRUCTIVE)
def test_what_destroys_is_refused_without_a_terminal_and_without_yes(words: str) -> None:
    word = words.split()[0]
    # No broker listens there: the refusal comes before any request.
    given = [*words.split(), "--bootstrap-server", "127.0.0.1:1"]
    done = CliRunner().invoke(build(word), given)
    assert done.exit_code == 2
    assert "give --yes" in done.stderr
    assert done.stderr.count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_the_user_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, agreed: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    if agreed:
        confirm("topics delete", "Delete topic t?", yes=False)
    else:
        with pytest.raises(typer.Exit) as exit_:
            confirm("topics delete", "Delete topic t?", yes=False)
        assert exit_.value.exit_code == 1
        assert "Nothing was changed." in capsys.readouterr().err


def test_a_usage_error_has_exit_code_2() -> None:
    assert CliRunner().invoke(build("topics"), ["topics", "list", "--no-such"]).exit_code == 2


def test_a_table_in_a_pipe_is_plain_and_on_a_terminal_it_is_coloured_and_safe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [["1", "live"], ["22", "fenced"]]
    print_table(["ID", "STATE"], rows)
    assert capsys.readouterr().out == "ID  STATE\n1   live\n22  fenced\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(["ID", "STATE"], [*rows, ["3", "\x1b]0;evil\x07"]])
    shown = terminal.getvalue()
    assert "\x1b[32mlive" in shown
    assert " 1  " in shown
    assert "\x1b]" not in shown
    assert r"\x1b]0;evil\x07" in shown


def test_what_clients_name_forges_no_lines_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe often ends at a terminal."""
    print_table(["CLIENT", "LAG"], [["a\nb  0", "7"], ["\x1b[2J", "8"], ["\udc80é", "9"]])
    print_line("group \x1b[2J\r\u202e")
    assert capsys.readouterr().out.splitlines() == [
        "CLIENT   LAG",
        r"a\nb  0  7",
        r"\x1b[2J  8",
        r"\udc80é  9",
        r"group \x1b[2J\r\u202e",
    ]
    print_json({"client": "\x1b[2J"})
    assert json.loads(capsys.readouterr().out) == {"client": "\x1b[2J"}


def test_an_error_that_names_things_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        fail("groups describe", "group \x1b[2J does not exist")
    assert capsys.readouterr().err == "penstock groups describe: group ?[2J does not exist\n"


# With a broker


def test_topics_and_quorum_are_printed_as_json_or_plain(bootstrap: str) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(
            build("topics", "quorum", "elect-leaders"), [*words, "--bootstrap-server", bootstrap]
        )
        assert done.exit_code == 0, done.stderr
        return done.stdout

    run("topics", "create", "json", "--partitions", "2", "-c", "retention.ms=1000")
    listed = {each["name"]: each for each in json.loads(run("topics", "list", "--json"))}
    assert listed["json"] == {
        "name": "json",
        "partitions": 2,
        "replication_factor": 1,
        "under_replicated": 0,
        "offline": 0,
        "internal": False,
    }
    assert "json" in run("topics", "list").splitlines()
    (described,) = json.loads(run("topics", "describe", "json", "--json"))
    assert described["configs"]["retention.ms"] == "1000"
    assert [each["partition"] for each in described["partitions"]] == [0, 1]
    assert {each["state"] for each in described["partitions"]} == {"ok"}
    (offline,) = json.loads(run("topics", "describe", "json", "--offline", "--json"))
    assert offline["partitions"] == []
    quorum = json.loads(run("quorum", "describe", "--json"))
    assert quorum["leader"] == quorum["voters"][0]["id"]
    assert quorum["voters"][0]["lag"] == 0
    assert json.loads(run("elect-leaders", "--json")) == []
    run("topics", "delete", "json", "--yes")
    assert "json" not in run("topics", "list").splitlines()


def complete(words: str, word: str) -> str:
    env = {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    return CliRunner().invoke(build(word), [], env=env, prog_name="penstock").stdout


def test_a_shell_completes_commands_and_topic_names(bootstrap: str) -> None:
    at = ["--bootstrap-server", bootstrap]
    CliRunner().invoke(build("topics"), ["topics", "create", "completed", *at])
    assert complete("penstock topics de", "topics").split() == ["describe", "delete"]
    words = f"penstock topics describe --bootstrap-server {bootstrap} comp"
    assert complete(words, "topics").split() == ["completed"]
    # A cluster that does not answer has no names, and the shell sees no error.
    words = "penstock topics describe --bootstrap-server 127.0.0.1:1 comp"
    assert complete(words, "topics").split() == []
