"""A real cluster (`penstock up --brokers N`), `penstock nodes`, and requests to its brokers.

It uses only the command line and the client.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.cli.cluster.layout import free_ports, is_free
from penstock.client.client import Client
from penstock.client.metadata import PartitionInfo
from penstock.errors import KafkaError
from penstock.world import World
from penstock.world.real import run
from tests.e2e.penstock_process import COMMAND, READY, PenstockError, first_line

PATIENCE_S = 30.0
T = TypeVar("T")


class PenstockCluster:
    """`port` is the port of broker 1; the other brokers have the next ports, below the ephemeral
    range."""

    penstock = COMMAND
    # Added to the environment of all nodes.
    environment: Mapping[str, str] = {}

    def __init__(
        self,
        directory: Path,
        *settings: str,
        brokers: int = 3,
        controllers: int | None = None,
        racks: str | None = None,
    ) -> None:
        self.directory = directory / "cluster"
        self.brokers = brokers
        self.port = _free_run(brokers + 1)
        self.bootstrap = ",".join(f"127.0.0.1:{self.port + number}" for number in range(brokers))
        self._flags = [part for setting in settings for part in ("-c", setting)]
        self._flags += ["--brokers", str(brokers), "--port", str(self.port)]
        self._flags += [] if controllers is None else ["--controllers", str(controllers)]
        self._flags += [] if racks is None else ["--racks", racks]
        self._errors = directory / "stderr"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._errors.open("ab") as errors:
            command = [str(self.penstock), "up", "--dir", str(self.directory), *self._flags]
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **self.environment},
            )
        line = first_line(self.process, time.monotonic() + PATIENCE_S)
        if line != READY + self.bootstrap:
            self.kill()
            raise PenstockError(f"penstock up printed {line!r}; {self.logs()}")

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            more, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise PenstockError(
                f"penstock up did not end within {PATIENCE_S} s of SIGTERM; {self.logs()}"
            ) from None
        if process.returncode != 0 or more:
            raise PenstockError(
                f"after SIGTERM penstock up ended with {process.returncode} and printed {more!r}; "
                f"{self.logs()}"
            )

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()

    def nodes(self, *arguments: str) -> str:
        return self.command("nodes", *arguments, "--dir", str(self.directory))

    def command(self, *arguments: str) -> str:
        """Run the command and return its standard output. A non-zero exit code is an error."""
        done = subprocess.run(
            [str(self.penstock), *arguments],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise PenstockError(
                f"penstock {' '.join(arguments)} ended with {done.returncode}: {done.stderr}; "
                f"{self.logs()}"
            )
        return done.stdout

    def list(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self.nodes("list", "--json"))
        return listed

    def log_of(self, node: int) -> str:
        return (self.directory / str(node) / "penstock.log").read_text(errors="replace")

    def logs(self) -> str:
        """Return the ends of all logs, for the message of a failure."""
        logs = sorted(self.directory.glob("*/penstock.log"))
        return "\n".join(
            f"{file}:\n{file.read_text(errors='replace')[-1500:]}"
            for file in [self._errors, *logs]
            if file.exists()
        )

    # Requests

    def ask(
        self, work: Callable[[Client], Coroutine[Any, Any, T]], *, broker: int | None = None
    ) -> T:
        """Run `work` with a client of any broker, or of the given one."""
        bootstrap = self.bootstrap if broker is None else f"127.0.0.1:{self.port + broker - 1}"

        async def main(world: World) -> T:
            async with Client(world, bootstrap, request_timeout_s=10.0) as client:
                return await work(client)

        return run(main)

    def create_topic(self, name: str, assignments: Sequence[Sequence[int]], **configs: str) -> None:
        """Create a topic. Config names have underscores in place of dots."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}

        async def work(client: Client) -> None:
            await client.admin.create_topic(name, assignments=assignments, configs=settings)

        self.ask(work)

    def partition(self, topic: str, index: int = 0, *, broker: int | None = None) -> PartitionInfo:
        async def work(client: Client) -> PartitionInfo:
            (info,) = await client.admin.describe_partitions([topic])
            return info.partition(index)

        return self.ask(work, broker=broker)

    def quorum_leader(self) -> int:
        async def work(client: Client) -> int:
            return (await client.admin.describe_quorum()).leader_id

        return self.ask(work)

    def wait_partition(
        self, topic: str, condition: Callable[[PartitionInfo], bool], *, index: int = 0
    ) -> PartitionInfo:
        return wait_for(
            lambda: self.partition(topic, index), condition, f"{topic}-{index}", self.logs
        )


def wait_for(
    look: Callable[[], T],
    condition: Callable[[T], bool],
    what: str,
    explain: Callable[[], str] = lambda: "",
) -> T:
    """Return the first value that satisfies the condition. Kafka errors while the cluster
    changes are retried."""
    deadline = time.monotonic() + PATIENCE_S
    seen: object = None
    while time.monotonic() < deadline:
        try:
            seen = found = look()
            if condition(found):
                return found
        except KafkaError as error:
            seen = error
        time.sleep(0.05)
    raise PenstockError(
        f"{what} did not reach the expected state within {PATIENCE_S} s, the last value was "
        f"{seen!r}; {explain()}"
    )


def _free_run(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    while True:
        (first,) = free_ports(1, ())
        if all(is_free(port) for port in range(first, first + count)):
            return first
