"""The two clusters of a comparison as processes, with three brokers each.

`penstock up --brokers 3`, and Apache Kafka with the JVM flags of its scripts. Starts, restarts and
kills nodes, and reads their memory; the benchmarks measure everything else.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.peer import EAGER, HEAP, JVM, resident_mb
from bench.side_by_side import OURS
from penstock.cli.cluster import control
from penstock.cli.cluster.layout import free_ports
from tests.e2e.penstock_cluster import PenstockCluster
from tests.java.kafka_jars import fetch_jars, run_java
from tests.java.kafka_node import CLUSTER_ID

BROKERS = 3
FIRST_CONTROLLER = 101
READY_TIMEOUT_S = 120.0
# Besides addresses: the replication of internal topics, and no delay before a group's first
# rebalance.
KAFKA_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class ClusterPeer(Protocol):
    bootstrap: str

    def start(self) -> None:
        """Start the cluster and wait until all brokers are ready."""

    def pids(self) -> dict[int, int]:
        """Return the process ids of the running nodes."""

    def restart(self, node: int) -> None:
        """Start a killed node; it need not be ready on return."""

    def resident_mb(self) -> float: ...
    def kill(self) -> None: ...


class PenstockPeer:
    def __init__(self, directory: Path, controllers: int | None = None) -> None:
        directory.mkdir(parents=True)
        self._cluster = PenstockCluster(directory, brokers=BROKERS, controllers=controllers)
        self.bootstrap = self._cluster.bootstrap

    def start(self) -> None:
        self._cluster.start()

    def pids(self) -> dict[int, int]:
        nodes = control.send_request(self._cluster.directory, {"do": "list"}, READY_TIMEOUT_S)
        return {node["id"]: node["pid"] for node in nodes if node["pid"] is not None}

    def restart(self, node: int) -> None:
        self._cluster.nodes("restart", str(node))

    def resident_mb(self) -> float:
        """Return the memory of the nodes and their parent `up`; shared pages count in each."""
        return 0.0 if self._cluster.process is None else resident_mb(self._cluster.process.pid)

    def kill(self) -> None:
        self._cluster.kill()


class KafkaPeer:
    """Formats its directories on construction, so that start times do not include it."""

    def __init__(self, directory: Path, controllers: int | None = None) -> None:
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ids = list(range(1, BROKERS + 1))
        quorum = (
            ids
            if controllers is None
            else list(range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers))
        )
        ports = free_ports(BROKERS + len(quorum), ())
        self._brokers = dict(zip(ids, ports, strict=False))
        self._quorum = dict(zip(quorum, ports[BROKERS:], strict=True))
        self._nodes = sorted({*ids, *quorum})
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._brokers.values())
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._format, self._nodes))

    def start(self) -> None:
        for node in self._nodes:
            self.restart(node)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **EAGER})
        _until(lambda: len(admin.list_topics(timeout=1).brokers) == BROKERS)

    def pids(self) -> dict[int, int]:
        return {
            node: process.pid for node, process in self._processes.items() if process.poll() is None
        }

    def restart(self, node: int) -> None:
        command = [
            "java",
            *HEAP,
            *JVM,
            "-cp",
            f"{fetch_jars()}/*",
            "kafka.Kafka",
            str(self._properties(node)),
        ]
        home = self._directory / str(node)
        with (home / "output").open("ab") as output:
            self._processes[node] = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=home
            )

    def resident_mb(self) -> float:
        return sum(resident_mb(pid) for pid in self.pids().values())

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def _properties(self, node: int) -> Path:
        return self._directory / str(node) / "server.properties"

    def _format(self, node: int) -> None:
        listeners = {
            "broker": ("PLAINTEXT", self._brokers.get(node)),
            "controller": ("CONTROLLER", self._quorum.get(node)),
        }
        roles = {
            role: f"{name}://127.0.0.1:{port}" for role, (name, port) in listeners.items() if port
        }
        settings = {
            **KAFKA_SETTINGS,
            "process.roles": ",".join(roles),
            "node.id": str(node),
            "controller.quorum.voters": ",".join(
                f"{voter}@127.0.0.1:{port}" for voter, port in self._quorum.items()
            ),
            "listeners": ",".join(roles.values()),
            "log.dirs": str(self._directory / str(node) / "data"),
        }
        file = self._properties(node)
        file.parent.mkdir(parents=True)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file))


def new_cluster(name: str, directory: Path, controllers: int | None = None) -> ClusterPeer:
    """Return a cluster that is not started; with `controllers`, it has dedicated controllers."""
    home = directory / name.replace(" ", "-")
    return PenstockPeer(home, controllers) if name == OURS else KafkaPeer(home, controllers)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except KafkaException:
            pass  # No broker responds yet.
        time.sleep(0.01)
    raise SystemExit(f"Apache Kafka was not ready within {READY_TIMEOUT_S:.0f} s")
