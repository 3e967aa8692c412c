"""A real Penstock broker, `penstock up`, as a process of its own: started, stopped, killed and
started again on its port and directory.

Knows the command line and nothing of what is behind it.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol, TypeVar

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
READY = "ready bootstrap.servers="
COMMAND = Path(sys.executable).parent / "penstock"


class PenstockError(Exception):
    """The process did not do what it should; the text has what it printed."""


class PenstockProcess:
    """`start`, `stop` and `kill` may follow each other any number of times."""

    def __init__(self, directory: Path, *settings: str, port: int | None = None) -> None:
        """On a free port that stays its own; with port 0 the broker chooses, and `bootstrap` is
        known once it is ready."""
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
        """Returns when the process says that it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            str(COMMAND),
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
                f"penstock up printed {line!r} where {READY}{expected} should be{self._said()}"
            )
        self.bootstrap = line.removeprefix(READY)

    def stop(self) -> None:
        """SIGTERM, and a clean end: exit code 0, and nothing more on stdout than the line that said
        ready."""
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
                f"penstock up did not end within {STOP_TIMEOUT_S} s of SIGTERM{self._said()}"
            ) from None
        if process.returncode != 0 or more:
            raise PenstockError(
                f"after SIGTERM penstock up ended with {process.returncode} and printed "
                f"{more!r}{self._said()}"
            )

    def kill(self) -> None:
        """kill -9."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()

    @property
    def _errors(self) -> Path:
        return self.directory / "stderr"

    def _said(self) -> str:
        said = self._errors.read_text(errors="replace")[-4000:] if self._errors.exists() else ""
        return f"; on stderr:\n{said}" if said else ", nothing on stderr"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def first_line(process: subprocess.Popen[bytes], deadline: float) -> str:
    """The first line of stdout, or what came of it when the process ended or the time was up."""
    output: IO[bytes] | None = process.stdout
    if output is None:
        raise PenstockError("the process was started without a pipe for its stdout")
    line = b""
    while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if not select.select([output], [], [], left)[0]:
            break
        byte = os.read(output.fileno(), 1)  # not through the buffer, of which select knows nothing
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
def running(one: S) -> Iterator[S]:
    """Stopped cleanly at the end of a test that went well."""
    try:
        one.start()
        yield one
        one.stop()
    finally:
        one.kill()
