"""A real cluster of `penstock up --secure`, and its files."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from penstock.cli import build
from penstock.config.properties import decode_properties
from tests.e2e.penstock_process import COMMAND, READY, PenstockError, first_line

PATIENCE_S = 60.0


class SecureUp:
    """`start` and `stop` can be called any number of times."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory = directory / "secure"
        self.bootstrap = ""
        # What `up` prints after its first line.
        self.printed: list[str] = []
        self._flags = flags
        self._errors = directory / "stderr"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        command = [str(COMMAND), "up", "--dir", str(self.directory), *self._flags, *flags]
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        deadline = time.monotonic() + PATIENCE_S
        line = first_line(self._process, deadline)
        if not line.startswith(READY):
            self.stop()
            raise PenstockError(f"penstock up printed {line!r}; {self._errors.read_text()}")
        self.bootstrap = line.removeprefix(READY)
        self.printed = [first_line(self._process, deadline) for _ in range(2)]

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise

    @property
    def client_properties(self) -> Path:
        return self.directory / "client.properties"

    @property
    def librdkafka(self) -> dict[str, Any]:
        """The settings of librdkafka.properties."""
        lines = (self.directory / "librdkafka.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def java(self) -> dict[str, str]:
        """The settings of client.properties."""
        data = self.client_properties.read_bytes()
        entries = decode_properties(data, "client.properties").entries
        return {name: entry.value for name, entry in entries.items()}

    @property
    def secrets(self) -> list[str]:
        """Passwords and the token of the metrics."""
        values: dict[str, str] = json.loads((self.directory / "secure.json").read_text())
        return list(values.values())

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        """Run penstock, and return its standard output. An exit code other than 0 is an error."""
        done = CliRunner().invoke(build(words[0]), list(words), env=environment)
        if done.exit_code:
            raise PenstockError(f"{words} ended with {done.exit_code}: {done.stderr}")
        return done.stdout

    def logs(self) -> str:
        return "".join(
            log.read_text(errors="replace") for log in self.directory.glob("*/penstock.log")
        )
