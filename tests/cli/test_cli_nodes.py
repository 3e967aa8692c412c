"""penstock nodes and the supervisor, with real processes and signals but stub nodes
(`stub_cluster`)."""

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

from penstock.cli import build
from penstock.cli.cluster import control

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 20.0


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

    def send(self, **request: Any) -> list[dict[str, Any]]:
        return control.send_request(self.directory, request, TIMEOUT_S)

    def states(self) -> dict[int, str]:
        return {node["id"]: node["state"] for node in self.send(do="list")}

    def pids(self) -> dict[int, int]:
        return {node["id"]: node["pid"] for node in self.send(do="list")}

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _stdout, stderr = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, stderr


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Stub]:
    stub = Stub(tmp_path)
    assert stub.wait_ready().startswith("ready 127.0.0.1:")
    yield stub
    stub.process.kill()
    stub.process.communicate()


def nodes(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(build("nodes"), ["nodes", *arguments, "--dir", str(directory)])


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_list_shows_every_node_and_its_process(stub: Stub) -> None:
    listed = json.loads(nodes(stub.directory, "list", "--json").stdout)
    assert [node["id"] for node in listed] == [1, 2, 3]
    assert listed[0].keys() == {
        "id",
        "pid",
        "roles",
        "port",
        "dir",
        "metrics",
        "state",
    }
    assert listed[1] | {"pid": 0, "port": 0, "metrics": ""} == {
        "id": 2,
        "pid": 0,
        "roles": ["broker", "controller"],
        "port": 0,
        "dir": str(stub.directory / "2"),
        "metrics": "",
        "state": "running",
    }
    assert all(exists(node["pid"]) for node in listed)
    assert "broker,controller" in nodes(stub.directory, "list").stdout


def test_a_killed_node_stays_stopped_until_it_is_started(stub: Stub) -> None:
    before = stub.pids()
    assert nodes(stub.directory, "kill", "2").exit_code == 0
    assert not exists(before[2])
    assert stub.states() == {1: "running", 2: "stopped", 3: "running"}
    assert json.loads(nodes(stub.directory, "list", "--json").stdout)[1]["pid"] is None
    assert not (stub.directory / "2" / "stopped").exists()
    (after,) = stub.send(do="start", ids=[2])
    assert after["state"] == "running"
    assert after["pid"] not in before.values()


def test_nodes_are_paused_and_resumed(stub: Stub) -> None:
    assert nodes(stub.directory, "pause", "1", "3").exit_code == 0
    assert stub.states() == {1: "paused", 2: "running", 3: "paused"}
    assert nodes(stub.directory, "resume", "3").exit_code == 0
    assert stub.states() == {1: "paused", 2: "running", 3: "running"}
    stub.send(do="stop", ids=[1])
    assert (stub.directory / "1" / "stopped").exists()


def test_an_added_broker_is_part_of_the_next_start(stub: Stub, tmp_path: Path) -> None:
    (added,) = stub.send(do="add")
    assert (added["id"], added["roles"]) == (4, ["broker"])
    assert stub.end()[0] == 0
    again = Stub(tmp_path)
    assert again.wait_ready().count(":") == 4
    assert len(again.states()) == 4
    assert again.end()[0] == 0


def test_sigterm_stops_all_nodes_cleanly(stub: Stub) -> None:
    pids = stub.pids()
    stub.send(do="pause", ids=[3])
    assert stub.end() == (0, "")
    assert not any(exists(pid) for pid in pids.values())
    assert all((stub.directory / str(node) / "stopped").exists() for node in (1, 2, 3))
    assert not (stub.directory / control.SOCKET).exists()


def test_a_second_signal_kills_the_remaining_nodes(stub: Stub) -> None:
    (stub.directory / "1" / "linger").touch()
    stub.send(do="stop", ids=[1])
    stub.send(do="start", ids=[1])
    stub.process.send_signal(signal.SIGINT)
    wait(lambda: (stub.directory / "3" / "stopped").exists())
    assert stub.end()[0] == 0


def test_killing_the_supervisor_kills_all_nodes(stub: Stub, tmp_path: Path) -> None:
    pids = stub.pids()
    stub.send(do="pause", ids=[2])
    stub.process.kill()
    stub.process.communicate()
    wait(lambda: not any(exists(pid) for pid in pids.values()))
    again = Stub(tmp_path)
    assert again.wait_ready()
    assert again.end()[0] == 0


def test_a_node_that_ends_is_reported_and_not_restarted(stub: Stub) -> None:
    os.kill(stub.pids()[3], signal.SIGKILL)
    wait(lambda: stub.states()[3] == "stopped")
    assert stub.end() == (0, "penstock up: node 3 ended by SIGKILL\n")


def test_a_node_that_cannot_start_fails_the_cluster_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "refuse").touch()
    stub = Stub(tmp_path)
    assert stub.wait_ready() == ""
    _stdout, stderr = stub.process.communicate(timeout=TIMEOUT_S)
    assert stub.process.returncode == 1
    assert stderr == (
        f"node 2 ended with exit code 7; the last line of its log {tmp_path}/2/penstock.log: "
        "the node refuses to start\n"
    )


def test_a_failed_restart_reports_the_reason(stub: Stub) -> None:
    (stub.directory / "2" / "refuse").touch()
    result = nodes(stub.directory, "restart", "2")
    assert result.exit_code == 1
    assert "node 2 ended with exit code 7" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("kill", "9"), "node 9 does not exist; the nodes are 1, 2, 3"),
        (("pause", "2"), "node 2 is not running"),
        (("kill", "2"), "node 2 is not running"),
    ],
)
def test_impossible_requests_are_refused(
    stub: Stub, arguments: tuple[str, ...], reason: str
) -> None:
    stub.send(do="kill", ids=[2])
    result = nodes(stub.directory, *arguments)
    assert (result.exit_code, result.stderr) == (1, f"penstock nodes {arguments[0]}: {reason}\n")


def test_invalid_control_requests_are_refused(stub: Stub) -> None:
    for request in ({"do": "dance", "ids": [1]}, {"do": "kill"}, {"do": "kill", "ids": ["x"]}, {}):
        with pytest.raises(control.ControlError):
            control.send_request(stub.directory, request, TIMEOUT_S)
    assert set(stub.states().values()) == {"running"}


def test_without_penstock_up_nodes_are_listed_as_stopped_and_requests_are_refused(
    stub: Stub,
) -> None:
    stub.end()
    listed = json.loads(nodes(stub.directory, "list", "--json").stdout)
    assert [(node["pid"], node["state"]) for node in listed] == [(None, "stopped")] * 3
    result = nodes(stub.directory, "kill", "1")
    assert (result.exit_code, result.stderr) == (
        1,
        f"penstock nodes kill: no penstock up runs in {stub.directory}: start it first\n",
    )


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    result = nodes(tmp_path, "list")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        f"penstock nodes list: {tmp_path} has no cluster: create one with penstock up --brokers 3"
    )


def test_a_second_up_is_refused(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOCK_TIMEOUT_S", 0.1)
    with pytest.raises(control.ControlError, match="another penstock up runs in"):
        control.lock(tmp_path)
    assert set(stub.states().values()) == {"running"}
