"""penstock topics, produce and consume against a scripted broker on a real socket.

tests/java runs them against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli.consume import as_object, consume_command, parse_time
from penstock.cli.produce import produce_command, split_line
from penstock.cli.session import CommandFailed, parse_pairs
from penstock.cli.topics import (
    alter_command,
    create_command,
    delete_command,
    describe_command,
    list_command,
)
from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.world import World
from penstock.world.real import run
from tests.client.scripted_broker import TOPIC, ScriptedBroker

CLOSED_PORT = "127.0.0.1:1"


def application() -> typer.Typer:
    app = typer.Typer()
    app.command("produce")(produce_command)
    app.command("consume")(consume_command)
    topics = typer.Typer()
    app.add_typer(topics, name="topics")
    for name, command in (
        ("create", create_command),
        ("list", list_command),
        ("describe", describe_command),
    ):
        topics.command(name)(command)
    topics.command("alter")(alter_command)
    topics.command("delete")(delete_command)
    return app


def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(application(), list(arguments), input=stdin)


class ServedBroker(ScriptedBroker):
    """A scripted broker on an event loop in its own thread."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0, partitions=2)
        self._ready = threading.Event()
        self.written = threading.Event()
        self._thread = threading.Thread(target=run, args=(self._serve,))

    def handle(self, version: int, request: object) -> object:
        response = super().handle(version, request)
        if any(partition.end for partition in self.partitions):
            self.written.set()
        return response

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self, world: World) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.port = await self.listen(world)
        self._ready.set()
        await self._stop.wait()

    @property
    def bootstrap(self) -> tuple[str, str]:
        return "--bootstrap-server", f"127.0.0.1:{self.port}"


@pytest.fixture
def broker() -> Iterator[ServedBroker]:
    broker = ServedBroker()
    broker.start()
    yield broker
    broker.stop()


def test_produce_and_consume_exchange_lines(broker: ServedBroker) -> None:
    produced = invoke(
        "produce", TOPIC, *broker.bootstrap, stdin="one\ntwo\r\n\nlast without an end"
    )
    assert (produced.exit_code, produced.stdout, produced.stderr) == (0, "", "")
    consumed = invoke("consume", TOPIC, "--from-beginning", "--exit-at-end", *broker.bootstrap)
    assert (consumed.exit_code, consumed.stderr) == (0, "")
    assert sorted(consumed.stdout.split("\n")) == sorted(
        ["one", "two", "", "last without an end", ""]
    )


def test_keys_headers_and_json(broker: ServedBroker) -> None:
    assert (
        invoke(
            "produce",
            TOPIC,
            "--key-separator",
            ":",
            "-H",
            "a=1",
            "-H",
            "a=2",
            *broker.bootstrap,
            stdin="k:v:w\n:\n",
        ).exit_code
        == 0
    )
    consumed = invoke(
        "consume", TOPIC, "--from-beginning", "--exit-at-end", "--json", *broker.bootstrap
    )
    records = {record["key"]: record for record in map(json.loads, consumed.stdout.splitlines())}
    assert records.keys() == {"k", ""}
    assert records["k"] | {"timestamp": 0} == {
        "topic": TOPIC,
        "partition": records["k"]["partition"],
        "offset": records["k"]["offset"],
        "timestamp": 0,
        "key": "k",
        "value": "v:w",
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}],
    }
    assert records["k"]["timestamp"] > 1_700_000_000_000


def test_produce_stops_at_a_line_without_the_separator(broker: ServedBroker) -> None:
    result = invoke(
        "produce", TOPIC, "--key-separator", "=", *broker.bootstrap, stdin="a=1\nnone\nb=2\n"
    )
    assert result.exit_code == 1
    assert result.stderr == (
        "penstock produce: line 2 has no key separator '=': this line and those after it were not "
        "written\n"
    )
    written = [record for partition in broker.partitions for record in partition.records()]
    assert [record.value for record in written] == [b"1"]


def test_consume_starts_and_ends_at_the_given_offsets(broker: ServedBroker) -> None:
    invoke(
        "produce",
        TOPIC,
        "--key-separator",
        "=",
        *broker.bootstrap,
        stdin="".join(f"k={number}\n" for number in range(10)),
    )
    partition = str(next(index for index, part in enumerate(broker.partitions) if part.end))

    def values(*options: str) -> list[str]:
        return invoke("consume", TOPIC, *options, *broker.bootstrap).stdout.split()

    assert values("--from-beginning", "--max-messages", "3") == ["0", "1", "2"]
    assert values("--partition", partition, "--offset", "7", "--exit-at-end") == ["7", "8", "9"]
    assert values("--since", "1h", "--exit-at-end") == [str(number) for number in range(10)]
    assert values("--since", "2100-01-01", "--exit-at-end") == values("--exit-at-end") == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["topics", "list"], "cannot connect to 127.0.0.1:1: "),
        (["topics", "describe"], "cannot connect to 127.0.0.1:1: "),
        (["topics", "create", "t"], "cannot connect to 127.0.0.1:1: "),
        (["topics", "delete", "t", "--yes"], "cannot connect to 127.0.0.1:1: "),
        (["topics", "alter", "t", "--partitions", "2"], "cannot connect to 127.0.0.1:1: "),
        (["topics", "alter", "t"], "nothing to alter"),
        (["produce", "t"], "cannot connect to 127.0.0.1:1: "),
        (["consume", "t"], "cannot connect to 127.0.0.1:1: "),
        (["consume", "t", "--from-beginning", "--offset", "1"], "exclude each other"),
    ],
)
def test_failures_are_reported_in_one_line_with_exit_code_1(
    arguments: list[str], reason: str
) -> None:
    result = invoke(*arguments, "--bootstrap-server", CLOSED_PORT)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert reason in result.stderr
    assert result.stderr.startswith(
        f"penstock {' '.join(arguments[:2] if arguments[0] == 'topics' else arguments[:1])}: "
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["consume", TOPIC, "--partition", "9"], "topic events has no partition 9: it has 2"),
        (["consume", TOPIC, "--offset", "9"], "give --partition with --offset"),
        (
            ["consume", TOPIC, "--offset", "9", "--partition", "0"],
            "events-0 has no offset 9",
        ),
        (["consume", TOPIC, "--since", "yesterday"], "'yesterday' is not a time"),
        (["produce", TOPIC, "-H", "x"], "'x' is not a header"),
        (["produce", TOPIC, "--key-separator", ""], "--key-separator is empty"),
        (["topics", "create", "t", "-c", "x"], "'x' is not a config"),
        (
            ["topics", "alter", "t", "-c", "x=1", "--delete-config", "x"],
            "cannot be both set and deleted",
        ),
    ],
)
def test_invalid_arguments_are_reported(
    broker: ServedBroker, arguments: list[str], reason: str
) -> None:
    result = invoke(*arguments, *broker.bootstrap)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert reason in result.stderr


def test_an_invalid_address_is_reported() -> None:
    assert "give host:port" in invoke("topics", "list", "--bootstrap-server", "a:b").stderr


COMMAND = (
    "import typer; from penstock.cli.{0} import {0}_command as c; a = typer.Typer(); "
    "a.command()(c); a()"
)


def start_command(name: str, broker: ServedBroker, *options: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", COMMAND.format(name), TOPIC, *options, *broker.bootstrap]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def test_ctrl_c_ends_consume_silently(broker: ServedBroker) -> None:
    invoke("produce", TOPIC, *broker.bootstrap, stdin="one\n")
    with start_command("consume", broker, "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == (b"", b"")
        assert process.returncode == 130


def test_ctrl_c_ends_produce_while_it_waits_for_input(broker: ServedBroker) -> None:
    with start_command("produce", broker) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert broker.written.wait(20)
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert process.communicate(timeout=20) == (b"", b"")
        assert process.returncode == 130


def test_consume_ends_when_its_output_is_closed(broker: ServedBroker) -> None:
    invoke("produce", TOPIC, *broker.bootstrap, stdin="one\n")
    with start_command("consume", broker, "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        invoke("produce", TOPIC, *broker.bootstrap, stdin="two\n")
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("90s", NOW - 90_000),
        ("2h", NOW - 7_200_000),
        ("999999999d", 0),
        ("1700000000000", 1_700_000_000_000),
        ("2026-01-31T12:00+00:00", round(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)),
        ("2026-01-31", round(datetime(2026, 1, 31).timestamp() * 1000)),
    ],
)
def test_valid_times(text: str, time_ms: int) -> None:
    assert parse_time(text, NOW) == time_ms


@pytest.mark.parametrize("text", ["", "soon", "-5", "1960-01-01", "99999999999999999999", "5w"])
def test_invalid_times(text: str) -> None:
    with pytest.raises(CommandFailed):
        parse_time(text, NOW)


def test_parsing_of_lines_pairs_and_records() -> None:
    assert split_line(b"a::b::c", b"::") == (b"a", b"b::c")
    assert split_line(b"abc", b"::") == (None, b"abc")
    assert parse_pairs(["a=b=c", "d="], "setting") == {"a": "b=c", "d": ""}
    with pytest.raises(CommandFailed, match="given twice"):
        parse_pairs(["a=1", "a=2"], "setting")
    record = as_object(ConsumerRecord("t", 0, 1, 2, None, b"\xff", (("h", None),)))
    assert (record["key"], record["value"], record["headers"]) == (
        None,
        {"base64": "/w=="},
        [{"key": "h", "value": None}],
    )
