"""A child process whose output is collected while it runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# Spark lives for half a minute here: the code of Java's optimizing compiler would come too late.
JAVA_OPTIONS = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


class Child:
    """Leads its own process group."""

    def __init__(self, *command: str | Path) -> None:
        self.lines: list[str] = []
        self.started_s = time.monotonic()
        self.command = list(map(str, command))
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | JAVA_OPTIONS,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def last(self, pattern: str) -> re.Match[str] | None:
        """Return the match in the last line that matches the pattern."""
        return next(
            (match for line in reversed(self.lines) if (match := re.search(pattern, line))), None
        )

    def check(self) -> None:
        """Exit with the last lines of its output if the process failed."""
        if self.process.poll():
            self._reading.join()
            raise SystemExit("\n".join(["", *self.lines[-20:], f"{' '.join(self.command)} failed"]))

    def send_line(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process and its children at once (kill -9)."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._reading.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())


@contextlib.contextmanager
def running(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        child.stop()
