"""A combined node of Apache Kafka in its own directory, on free ports of the loopback address."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.java.kafka_jars import JavaError, fetch_jars, run_java

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
CLUSTER_ID = "UGVuc3RvY2tGaXh0dXJlcw"
SMALL = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class KafkaNode:
    """Formats its directory on construction; `start` and `stop` may be repeated on the same
    ports."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        broker, controller = _free_ports(2)
        self._port = broker
        self.bootstrap = f"127.0.0.1:{broker}"
        own = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
        }
        directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(
            "".join(f"{name}={value}\n" for name, value in {**SMALL, **own, **settings}.items())
        )
        run_java(
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "-t",
            CLUSTER_ID,
            "-c",
            str(self._properties),
        )

    def start(self) -> None:
        with (self.directory / "output").open("ab") as output:
            command = [
                "java",
                "-Xmx512m",
                "-cp",
                f"{fetch_jars()}/*",
                "kafka.Kafka",
                str(self._properties),
            ]
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=self.directory
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise JavaError(
                    "Apache Kafka did not "
                    f"start:\n{(self.directory / 'output').read_text()[-4000:]}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """Shut down cleanly: Kafka trims indexes and writes checkpoints and producer snapshots."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise JavaError(f"Apache Kafka did not stop within {STOP_TIMEOUT_S} s") from error
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(bound.getsockname()[1]) for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
