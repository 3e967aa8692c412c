"""The process of a test cluster, when the test ends before it has started one."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.testing.host import main

WITHIN_S = 30.0


@pytest.mark.parametrize("sent", [b"", b'{"brokers": '], ids=["nothing", "half a line"])
def test_the_directory_is_removed_if_the_test_ends_before_it_starts_a_cluster(
    tmp_path: Path, sent: bytes
) -> None:
    directory = tmp_path / "penstock-test"
    directory.mkdir()
    (directory / "host.log").touch()
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(sent)
    assert main(theirs.detach(), directory) == 0
    assert not directory.exists()


def test_a_killed_test_leaves_no_directory() -> None:
    program = """
import time
from penstock.testing.host_process import HostProcess
host = HostProcess()
print(host.directory, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        directory = Path(test.stdout.readline().strip())
        assert directory.is_dir()
        test.send_signal(signal.SIGKILL)
    until = time.monotonic() + WITHIN_S
    while directory.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not directory.exists()
