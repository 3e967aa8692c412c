"""A real Penstock broker (`penstock up`) in its own process, which can be stopped, killed and
restarted on its port and directory.

It uses only the command line.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Protocol, TypeVar

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
READY = "ready bootstrap.servers="
COMMAND = Path(sys.executable).parent / "penstock"


class PenstockError(Exception):
    """The process failed; the text has its output."""


class PenstockProcess:
    """`start`, `stop` and `kill` can be called any number of times."""

    command = COMMAND

    def __init__(self, directory: Path, *settings: str, port: int | None = None) -> None:
        """The broker listens on a free port, which it keeps across restarts. With port 0 the
        broker chooses the port, and `bootstrap` is known when it is ready."""
        self.directory = directory
        self.port = free_port() if port is None else port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._settings = [part for setting in settings for part in ("-c", setting)]

    @property
    def pid(self) -> int:
        if self.process is None:
            raise PenstockError("penstock is not running")
        return self.process.pid

    def start(self) -> None:
        """Start the process and return when it prints that it is ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            str(self.command),
            "up",
            "--port",
            str(self.port),
            "--dir",
            str(self.directory / "data"),
            *self._settings,
        ]
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, cwd=self.directory
            )

    def wait_ready(self) -> None:
        if self.process is None:
            raise PenstockError("penstock is not running")
        line = first_line(self.process, time.monotonic() + START_TIMEOUT_S)
        expected = r"127\.0\.0\.1:[1-9]\d*" if self.port == 0 else re.escape(self.bootstrap)
        if not re.fullmatch(READY + expected, line):
            self.kill()
            raise PenstockError(
                f"penstock up printed {line!r}, expected {READY}{expected}{self._stderr_text()}"
            )
        self.bootstrap = line.removeprefix(READY)

    def stop(self) -> None:
        """Send SIGTERM and require a clean exit: code 0 and no further standard output."""
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            more, _ = process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise PenstockError(
                f"penstock up did not end within {STOP_TIMEOUT_S} s of SIGTERM{self._stderr_text()}"
            ) from None
        if process.returncode != 0 or more:
            raise PenstockError(
                f"after SIGTERM penstock up ended with {process.returncode} and printed "
                f"{more!r}{self._stderr_text()}"
            )

    def kill(self) -> None:
        """Send SIGKILL."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()

    @property
    def _errors(self) -> Path:
        return self.directory / "stderr"

    def _stderr_text(self) -> str:
        text = self._errors.read_text(errors="replace")[-4000:] if self._errors.exists() else ""
        return f"; on stderr:\n{text}" if text else ", nothing on stderr"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def first_line(process: subprocess.Popen[bytes], deadline: float) -> str:
    """Return the first line of standard output, or as much of it as arrived before the process
    ended or the deadline passed."""
    output: IO[bytes] | None = process.stdout
    if output is None:
        raise PenstockError("the process was started without a pipe for its stdout")
    line = b""
    while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if not wait([output.fileno()], left):
            break
        byte = os.read(output.fileno(), 1)  # unbuffered: wait does not see a buffer
        if not byte:
            break
        line += byte
    return line.decode(errors="replace").rstrip("\n")


class Startable(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


S = TypeVar("S", bound=Startable)


@contextmanager
def running(process: S) -> Iterator[S]:
    """Start the process, and stop it cleanly if the test passes; kill it otherwise."""
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.kill()
