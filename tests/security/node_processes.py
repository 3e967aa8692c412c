"""Nodes in processes of their own (`penstock start`), each with a server.properties that a test
may change between two starts.

They use only the command line.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.cli.cluster.layout import free_ports
from tests.e2e.penstock_process import (
    COMMAND,
    READY,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    PenstockError,
    first_line,
)

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
HOST = "127.0.0.1"


class NodeProcess:
    """`settings` are those of the next start."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.settings = {"log.dirs": str(directory / "data"), **settings}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise PenstockError("the node is not running")
        return self.process.pid

    @property
    def log(self) -> str:
        file = self.directory / "stderr"
        return file.read_text(errors="replace") if file.exists() else ""

    def format(self, scram: Sequence[str] = (), *, standalone: bool = False) -> None:
        """Format the directories; `scram` are arguments of --add-scram."""
        self.directory.mkdir(parents=True, exist_ok=True)
        options = [word for text in scram for word in ("--add-scram", text)]
        options += ["--standalone"] if standalone else []
        done = subprocess.run(
            [str(COMMAND), "format", "-c", self._properties(), "-t", CLUSTER_ID, *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise PenstockError(f"penstock format failed: {done.stderr}")

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        with (self.directory / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                [str(COMMAND), "start", self._properties()], stdout=subprocess.PIPE, stderr=errors
            )

    def wait_ready(self) -> None:
        assert self.process is not None
        line = first_line(self.process, time.monotonic() + START_TIMEOUT_S)
        if not line.startswith(READY):
            self.kill()
            raise PenstockError(
                f"penstock start printed {line!r}; its log ends: {self.log[-4000:]}"
            )

    def stop(self) -> None:
        """Send SIGTERM, and require a clean exit."""
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise PenstockError(f"the node did not end after SIGTERM: {self.log[-4000:]}") from None
        if process.returncode != 0:
            raise PenstockError(f"the node ended with {process.returncode}: {self.log[-4000:]}")

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()

    def resident_bytes(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

    def _properties(self) -> str:
        file = self.directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        return str(file)


class NodeCluster:
    """Nodes that are brokers and controllers. `ports` has one port per listener and node; the
    ports are below the ephemeral range, so that no outgoing connection takes one during a
    restart."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        listeners: Sequence[str],
        nodes: int = 3,
        scram: Sequence[str] = (),
        first: Sequence[str] | None = None,
    ) -> None:
        """`first` are the listeners of the first start; the ports of the others are reserved."""
        free = free_ports(nodes * len(listeners), ())
        self.ports = [
            dict(zip(listeners, free[start : start + len(listeners)], strict=True))
            for start in range(0, len(free), len(listeners))
        ]
        voters = ",".join(
            f"{number}@{HOST}:{ports['CONTROLLER']}" for number, ports in enumerate(self.ports, 1)
        )
        copies = str(min(nodes, 3))
        self.nodes = []
        for number, _ports in enumerate(self.ports, 1):
            own = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "listeners": self.listeners(number, first or listeners),
                "offsets.topic.replication.factor": copies,
                "offsets.topic.num.partitions": "3",
                "transaction.state.log.replication.factor": copies,
                "transaction.state.log.num.partitions": "3",
                "transaction.state.log.min.isr": str(min(nodes, 2)),
                "group.initial.rebalance.delay.ms": "0",
                "default.replication.factor": copies,
                **settings,
            }
            node = NodeProcess(directory / str(number), own)
            node.format(scram)
            self.nodes.append(node)

    def listeners(self, number: int, names: Sequence[str]) -> str:
        """Return the value of `listeners` of a node."""
        ports = self.ports[number - 1]
        return ",".join(f"{name}://{HOST}:{ports[name]}" for name in names)

    def servers(self, listener: str) -> str:
        """Return the bootstrap servers of a listener."""
        return ",".join(f"{HOST}:{ports[listener]}" for ports in self.ports)

    def logs(self) -> str:
        return "\n".join(f"{node.directory.name}: {node.log[-2000:]}" for node in self.nodes)


@contextmanager
def running(cluster: NodeCluster) -> Iterator[NodeCluster]:
    """Start all nodes at once, and stop them cleanly if the test passes; kill them otherwise."""
    try:
        for node in cluster.nodes:
            node.launch()
        for node in cluster.nodes:
            node.wait_ready()
        yield cluster
        for node in cluster.nodes:
            node.stop()
    finally:
        for node in cluster.nodes:
            node.kill()
