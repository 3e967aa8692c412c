"""Processes of the crash matrix: a Spark driver with its JVM and Python workers, and the processes
below another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.spark.crash_job import Settings

ROOT = Path(__file__).resolve().parents[2]
_DAEMON = "pyspark.daemon"
# A driver lives for seconds, too short for an optimising compiler.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Process(NamedTuple):
    id: int
    parent: int
    command: str


def processes() -> Iterator[Process]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            # A process may end meanwhile.
            with suppress(OSError):
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                yield Process(int(directory.name), int(fields[1]), command)


def descendants(ancestor: int) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    pending = [ancestor]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += [process.id for process in below]
    return found


def python_workers(ancestor: int) -> list[int]:
    """Return the Python workers of a JVM: forks of a daemon, whose parent is a daemon too."""
    daemons = {each.id for each in descendants(ancestor) if _DAEMON in each.command}
    return [
        each.id for each in descendants(ancestor) if each.id in daemons and each.parent in daemons
    ]


def kill(process: int) -> None:
    _signal(process, signal.SIGKILL)


def _signal(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


class Driver:
    """A Spark driver in its own process group. Python workers have groups of their own."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.settings, self._log = settings, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.crash_job", settings.to_json()],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "JDK_JAVA_OPTIONS": _JAVA},
                start_new_session=True,
            )

    @property
    def id(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def kill(self, *, workers: bool) -> None:
        """Kill the driver with SIGKILL. Python workers end when they notice it, or at once with
        `workers`, as when a machine is lost."""
        below = [process.id for process in descendants(self.id)] if workers else []
        with suppress(ProcessLookupError):
            os.killpg(self.id, signal.SIGKILL)
        for process in below:
            kill(process)
        self._process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the driver and all processes below it. They go on in the end."""
        frozen = [self.id] + [process.id for process in descendants(self.id)]
        for process in frozen:
            _signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in frozen:
                _signal(process, signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def log(self) -> str:
        return self._log.read_text(errors="replace")
