"""The process of a test cluster, as the test sees it: `host` is what runs in it.

It begins to import the broker when it is made, and runs a cluster when `start` tells it which. Its
socket closes when the test's process ends, however that ends, and then the cluster ends, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SOCKET = "control.sock"
# An address of a socket has 108 bytes on Linux, and fewer elsewhere.
_MAX_PARENT_BYTES = 60
_READ_BYTES = 65_536
_END_WITHIN_S = 60.0
# Imports the same files as this process does. -P keeps the test's directory out of sys.path, where
# a file of a test could hide a module that the broker imports.
_PROGRAM = """\
import sys
from pathlib import Path
if sys.argv[1] not in sys.path:
    sys.path.insert(0, sys.argv[1])
from penstock.testing.host import main
sys.exit(main(int(sys.argv[2]), Path(sys.argv[3])))
"""


class ClusterError(Exception):
    """The cluster did not do what the test asked for. The text has the reason from its logs."""


class HostProcess:
    def __init__(self) -> None:
        usual = tempfile.gettempdir()
        parent = usual if len(os.fsencode(usual)) <= _MAX_PARENT_BYTES else "/tmp"
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-", dir=parent))
        self._lifeline, theirs = socket.socketpair()
        root = str(Path(__file__).parent.parent.parent)
        # The directory also identifies the cluster in the output of ps.
        arguments = [root, str(theirs.fileno()), str(self.directory)]
        with theirs, (self.directory / "host.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for the test, which stops the cluster afterwards.
                start_new_session=True,
            )

    def start(self, description: dict[str, Any]) -> None:
        """Tell the process which cluster to run."""
        try:
            self._lifeline.sendall(json.dumps(description).encode() + b"\n")
        except OSError:
            raise self._failed("ended before it started") from None

    def wait_ready(self, within_s: float) -> dict[str, str]:
        """Wait until clients can use the cluster. Return the addresses of its listeners."""
        deadline = time.monotonic() + within_s
        try:
            line = _read_line(self._lifeline, deadline)
        except TimeoutError:
            raise self._failed(f"did not start within {within_s:g} s") from None
        except OSError:
            raise self._failed("ended while it started") from None
        addresses: dict[str, str] = json.loads(line)
        return addresses

    def request(self, action: str, nodes: list[int], within_s: float) -> None:
        """Do something with nodes, as `penstock nodes` does, and wait until it is done.

        The socket is addressed by its path: a test's process must not change its working directory,
        which its other threads share.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(str(self.directory / SOCKET))
                connection.sendall(json.dumps({"do": action, "ids": nodes}).encode() + b"\n")
                reply = json.loads(_read_line(connection, time.monotonic() + within_s))
            except OSError as error:
                raise self._failed(f"did not {action} {nodes}: {error!r}") from error
        if "error" in reply:
            raise self._failed(f"did not {action} {nodes}: {reply['error']}")

    def _failed(self, problem: str) -> ClusterError:
        logs = [self.directory / "host.log", *sorted(self.directory.glob("*/penstock.log"))]
        ends = (f"{log}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs)
        return ClusterError("\n".join([f"the test cluster {problem}", *ends]))

    def end(self) -> None:
        """End the process, and remove the cluster's data. No effect the second time."""
        if self._process.returncode is not None:
            return
        # A process that a test has forked may hold the socket, too: close it for all.
        with contextlib.suppress(OSError):  # where a socket without its peer cannot be shut down
            self._lifeline.shutdown(socket.SHUT_RDWR)
        self._lifeline.close()
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    """Read a line. Raise TimeoutError at the deadline, ConnectionError if the other end closes."""
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        received = connection.recv(_READ_BYTES)
        if not received:
            raise ConnectionResetError("the cluster's process ended")
        line += received
    return line
