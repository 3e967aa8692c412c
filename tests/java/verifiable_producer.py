"""Kafka's VerifiableProducer as a process: produces the numbers 0, 1, 2, ... with acks=all, and
prints a JSON line for each that is acknowledged or lost.

Knows only the broker's address.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.java.kafka_jars import JAVA_TIMEOUT_S
from tests.java.kafka_tools import java

TOOL = "org.apache.kafka.tools.VerifiableProducer"
# The tool disables retries. These are the producer's defaults.
PATIENT = "retries=2147483647\nenable.idempotence=true\n"


class VerifiableProducer:
    """Runs until it has sent `count` numbers at a rate per second."""

    def __init__(
        self, directory: Path, bootstrap: str, topic: str, *, count: int, per_second: int
    ) -> None:
        settings = directory / "producer.properties"
        settings.write_text(PATIENT)
        flags = [
            "--acks",
            "-1",
            "--max-messages",
            str(count),
            "--throughput",
            str(per_second),
            "--command-config",
            str(settings),
        ]
        self._command = java(TOOL, "--bootstrap-server", bootstrap, "--topic", topic, *flags)
        self._printed = directory / "stdout"
        self._complained = directory / "stderr"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VerifiableProducer:
        with self._printed.open("wb") as printed, self._complained.open("wb") as complained:
            self._process = subprocess.Popen(self._command, stdout=printed, stderr=complained)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def acknowledged(self) -> int:
        """Return the number of acknowledgements so far."""
        return self._printed.read_bytes().count(b'"producer_send_success"')

    def end(self) -> list[dict[str, Any]]:
        """Return all events in order after a successful end without errors."""
        assert self._process is not None
        code = self._process.wait(JAVA_TIMEOUT_S)
        assert (code, self._complained.read_text()) == (0, "")
        return [json.loads(line) for line in self._printed.read_text().splitlines()]
