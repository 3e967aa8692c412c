"""penstock nodes, and the supervision behind it: real processes and signals, with nodes that do
nothing (`stub_cluster`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import build, control

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 20.0


class Stub:
    def __init__(self, directory: Path, brokers: int = 3) -> None:
        self.directory = directory
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", "tests.cli.stub_cluster", str(directory), str(brokers)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def wait_ready(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        return control.ask(self.directory, request, PATIENCE_S)

    def states(self) -> dict[int, str]:
        return {node["id"]: node["state"] for node in self.ask(do="list")}

    def pids(self) -> dict[int, int]:
        return {node["id"]: node["pid"] for node in self.ask(do="list")}

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _stdout, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Stub]:
    one = Stub(tmp_path)
    assert one.wait_ready().startswith("ready 127.0.0.1:")
    yield one
    one.process.kill()
    one.process.communicate()


def nodes(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(build("nodes"), ["nodes", *arguments, "--dir", str(directory)])


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_list_names_every_node_with_its_process(stub: Stub) -> None:
    listed = json.loads(nodes(stub.directory, "list", "--json").stdout)
    assert [node["id"] for node in listed] == [1, 2, 3]
    assert listed[0].keys() == {"id", "pid", "roles", "port", "dir", "state"}
    assert listed[1] | {"pid": 0, "port": 0} == {
        "id": 2,
        "pid": 0,
        "roles": ["broker", "controller"],
        "port": 0,
        "dir": str(stub.directory / "2"),
        "state": "running",
    }
    assert all(exists(node["pid"]) for node in listed)
    assert "broker,controller" in nodes(stub.directory, "list").stdout


def test_a_killed_node_stays_dead_until_it_is_started_again(stub: Stub) -> None:
    before = stub.pids()
    assert nodes(stub.directory, "kill", "2").exit_code == 0
    assert not exists(before[2])
    assert stub.states() == {1: "running", 2: "stopped", 3: "running"}
    assert json.loads(nodes(stub.directory, "list", "--json").stdout)[1]["pid"] is None
    assert not (stub.directory / "2" / "stopped").exists()
    (after,) = stub.ask(do="start", ids=[2])
    assert after["state"] == "running"
    assert after["pid"] not in before.values()


def test_a_paused_node_stands_still_until_it_is_resumed(stub: Stub) -> None:
    assert nodes(stub.directory, "pause", "1", "3").exit_code == 0
    assert stub.states() == {1: "paused", 2: "running", 3: "paused"}
    assert nodes(stub.directory, "resume", "3").exit_code == 0
    assert stub.states() == {1: "paused", 2: "running", 3: "running"}
    stub.ask(do="stop", ids=[1])
    assert (stub.directory / "1" / "stopped").exists()


def test_an_added_broker_is_kept(stub: Stub, tmp_path: Path) -> None:
    (added,) = stub.ask(do="add")
    assert (added["id"], added["roles"]) == (4, ["broker"])
    assert stub.end()[0] == 0
    again = Stub(tmp_path)
    assert again.wait_ready().count(":") == 4
    assert len(again.states()) == 4
    assert again.end()[0] == 0


def test_told_to_end_all_nodes_stop_cleanly(stub: Stub) -> None:
    pids = stub.pids()
    stub.ask(do="pause", ids=[3])
    assert stub.end() == (0, "")
    assert not any(exists(pid) for pid in pids.values())
    assert all((stub.directory / str(node) / "stopped").exists() for node in (1, 2, 3))
    assert not (stub.directory / control.SOCKET).exists()


def test_told_twice_nobody_is_waited_for(stub: Stub) -> None:
    (stub.directory / "1" / "linger").touch()
    stub.ask(do="stop", ids=[1])
    stub.ask(do="start", ids=[1])
    stub.process.send_signal(signal.SIGINT)
    wait(lambda: (stub.directory / "3" / "stopped").exists())
    assert stub.end()[0] == 0


def test_all_nodes_end_with_it_even_by_kill_9(stub: Stub, tmp_path: Path) -> None:
    pids = stub.pids()
    stub.ask(do="pause", ids=[2])
    stub.process.kill()
    stub.process.communicate()
    wait(lambda: not any(exists(pid) for pid in pids.values()))
    again = Stub(tmp_path)
    assert again.wait_ready()
    assert again.end()[0] == 0


def test_a_node_that_dies_is_told_of_and_nothing_more(stub: Stub) -> None:
    os.kill(stub.pids()[3], signal.SIGKILL)
    wait(lambda: stub.states()[3] == "stopped")
    assert stub.end() == (0, "penstock up: node 3 ended by SIGKILL\n")


def test_a_node_that_cannot_start_ends_it_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "refuse").touch()
    stub = Stub(tmp_path)
    assert stub.wait_ready() == ""
    _stdout, stderr = stub.process.communicate(timeout=PATIENCE_S)
    assert stub.process.returncode == 1
    assert stderr == (
        f"node 2 ended with exit code 7; its log {tmp_path}/2/penstock.log ends with: it was "
        "told to refuse\n"
    )


def test_a_restart_that_fails_says_why(stub: Stub) -> None:
    (stub.directory / "2" / "refuse").touch()
    result = nodes(stub.directory, "restart", "2")
    assert result.exit_code == 1
    assert "node 2 ended with exit code 7" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("kill", "9"), "there is no node 9: there are 1, 2, 3"),
        (("pause", "2"), "node 2 is not running"),
        (("kill", "2"), "node 2 is not running"),
    ],
)
def test_what_cannot_be_done_is_refused(
    stub: Stub, arguments: tuple[str, ...], reason: str
) -> None:
    stub.ask(do="kill", ids=[2])
    result = nodes(stub.directory, *arguments)
    assert (result.exit_code, result.stderr) == (1, f"penstock nodes {arguments[0]}: {reason}\n")


def test_requests_that_are_none_harm_nobody(stub: Stub) -> None:
    for request in ({"do": "dance", "ids": [1]}, {"do": "kill"}, {"do": "kill", "ids": ["x"]}, {}):
        with pytest.raises(control.ControlError):
            control.ask(stub.directory, request, PATIENCE_S)
    assert set(stub.states().values()) == {"running"}


def test_without_it_the_nodes_are_listed_as_stopped_and_nothing_can_be_done(stub: Stub) -> None:
    stub.end()
    listed = json.loads(nodes(stub.directory, "list", "--json").stdout)
    assert [(node["pid"], node["state"]) for node in listed] == [(None, "stopped")] * 3
    result = nodes(stub.directory, "kill", "1")
    assert (result.exit_code, result.stderr) == (
        1,
        f"penstock nodes kill: no penstock up works in {stub.directory}\n",
    )


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    result = nodes(tmp_path, "list")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        f"penstock nodes list: {tmp_path} has no cluster: penstock up --brokers 3"
    )


def test_a_second_up_is_refused(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOCK_PATIENCE_S", 0.1)
    with pytest.raises(control.ControlError, match="another penstock up works in"):
        control.lock(tmp_path)
    assert set(stub.states().values()) == {"running"}
