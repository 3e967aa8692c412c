"""kafka-storage.sh, kafka-server-start.sh and kafka-server-stop.sh."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.kafka import server_stop, storage
from penstock.cli.kafka.server_start import run as server_start
from tests.cli.kafka_tool import Tool
from tests.e2e.penstock_process import free_port

CLUSTER_ID = "UGVuc3RvY2tGaXh0dXJlcw"
TIMEOUT_S = 30.0


def properties(tmp_path: Path, port: int = 9092, node_id: int = 1) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id={node_id}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0\n"
    )
    return file


def test_info_before_and_after_format(tool: Tool, tmp_path: Path) -> None:
    config = ("-c", str(properties(tmp_path)))
    a, b = tmp_path / "a", tmp_path / "b"
    assert tool(storage.run, "info", *config) == (
        1,
        f"Found problems:\n  {a} does not exist\n  {b} does not exist\n\n",
        "",
    )
    code, out, err = tool(storage.run, "format", *config, "-t", CLUSTER_ID, "--standalone")
    assert (code, err) == (0, "")
    assert f"Formatting data directory {b} with metadata.version 4.3-IV0.\n" in out
    code, out, err = tool(storage.run, "info", *config)
    assert (code, err) == (0, "")
    assert re.fullmatch(
        rf"Found log directories:\n  {a}\n  {b}\n\n"
        r"Found metadata: "
        rf"\{{cluster\.id={CLUSTER_ID}, directory\.id=\S{{22}}, node\.id=1, version=1\}}\n\n",
        out,
    )
    again = ("format", *config, "-t", CLUSTER_ID, "--standalone")
    reason = (
        "is already formatted. Use --ignore-formatted to ignore this directory and format "
        "the others.\n"
    )
    assert tool(storage.run, *again) == (1, "", f"Log directory {a} {reason}")
    assert tool(storage.run, *again, "-g") == (
        0,
        "All of the log directories are already formatted.\n",
        "",
    )


def test_random_uuid_prints_uuids_without_a_leading_dash(tool: Tool) -> None:
    texts = {tool(storage.run, "random-uuid")[1] for _ in range(100)}
    assert len(texts) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", text) for text in texts)


def test_unsupported_storage_arguments_are_refused(tool: Tool, tmp_path: Path) -> None:
    assert tool(storage.run)[2].endswith("kafka-storage: error: too few arguments\n")
    config = ("-c", str(properties(tmp_path)), "-t", CLUSTER_ID)
    assert tool(storage.run, "format", *config, "-I", "1@a:1:x") == (
        1,
        "",
        "'1@a:1:x' of --initial-controllers is not of the form id@host:port:directoryId\n",
    )
    assert tool(storage.run, "format", *config, "-r", "3.9", "-s")[0] == 1
    assert tool(storage.run, "format", "-c", str(tmp_path / "nothere"), "-t", CLUSTER_ID)[0] == 1


def script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def run_script(
    name: str, *words: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script(name), *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment,
    )


def test_a_daemon_is_stopped_only_by_its_own_id(tmp_path: Path) -> None:
    port = free_port()
    file = properties(tmp_path, 1, node_id=7)
    logs = tmp_path / "logs"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "LOG_DIR": str(logs)}
    assert (
        run_script("kafka-server-stop.sh", environment=environment).stdout
        == "No kafka server to stop\n"
    )
    assert (
        run_script(
            "kafka-storage.sh",
            "format",
            "-s",
            "-c",
            str(file),
            "-t",
            CLUSTER_ID,
            environment=environment,
        ).returncode
        == 0
    )
    override = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    started = run_script(
        "kafka-server-start.sh",
        "-daemon",
        str(file),
        "--override",
        override,
        environment=environment,
    )
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    output = logs / "kafkaServer.out"
    wait(lambda: f"ready bootstrap.servers=127.0.0.1:{port}" in output.read_text())
    (entry,) = (tmp_path / f"penstock-servers-{os.getuid()}").glob("*.json")
    pid = int(entry.stem)
    try:
        assert (
            run_script("kafka-server-stop.sh", "--node-id=8", environment=environment).returncode
            == 0
        )
        assert (
            run_script(
                "kafka-server-stop.sh", "--process-role=broker", environment=environment
            ).returncode
            == 0
        )
        listed = run_script(
            "kafka-topics.sh",
            "--bootstrap-server",
            f"127.0.0.1:{port}",
            "--list",
            environment=environment,
        )
        assert (listed.returncode, listed.stdout) == (0, "\n")
        both = run_script(
            "kafka-server-stop.sh", "--node-id=7", "--process-role=broker", environment=environment
        )
        assert both.returncode == 0
        assert both.stdout == (
            "When both node-id and process-role are provided, the value for node-id will take "
            "precedence\n"
        )
        wait(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    stopped = run_script("kafka-server-stop.sh", environment=environment)
    assert (stopped.returncode, stopped.stdout) == (1, "No kafka server to stop\n")


def test_a_failed_start_reports_the_reason(tmp_path: Path, tool: Tool) -> None:
    code, out, err = tool(server_start, str(tmp_path / "nothere.properties"))
    assert (code, out) == (1, "")
    assert "nothere.properties" in err
    assert tool(server_start)[0] == 1


def test_an_unknown_signal_is_refused(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNAL", "HELLO")
    assert tool(server_stop.run) == (1, "", "SIGNAL=HELLO is not a signal\n")


@pytest.mark.parametrize(
    "name",
    [
        "topics",
        "storage",
        "server-start",
        "server-stop",
        "configs",
        "leader-election",
        "metadata-quorum",
    ],
)
def test_every_script_is_installed(name: str) -> None:
    assert shutil.which(script(f"kafka-{name}.sh")) is not None


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
