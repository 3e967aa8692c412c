"""The two brokers of a comparison as processes: Penstock (`penstock up`) and Apache Kafka 4.

Kafka's jars come from Maven, its JVM flags from its scripts. Starts and stops the processes and
reads their memory; the benchmarks measure everything else.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.e2e.penstock_process import PenstockProcess
from tests.java.kafka_jars import fetch_jars
from tests.java.kafka_node import KafkaNode

MB = 1024 * 1024
FIRST_TIMEOUT_S = 60.0
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
# As kafka-server-start.sh and kafka-run-class.sh set them.
HEAP = ["-Xmx1G", "-Xms1G"]
JVM = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
]
# Settings with which the client adds no waiting time to a broker's start.
EAGER = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 10,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 10,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "linger.ms": 0,
    "log_level": 0,
}


class Peer(Protocol):
    bootstrap: str

    @property
    def pid(self) -> int: ...
    def launch(self) -> None:
        """Start the process without waiting for it."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class KafkaPeer(KafkaNode):
    """Apache Kafka with the flags of its scripts; its directory is formatted before."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] = NO_SETTINGS,
        client: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        """`client` are the settings that a client of librdkafka needs to connect."""
        super().__init__(directory, settings)
        self._client = client

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._process.pid

    def launch(self) -> None:
        command = [
            "java",
            *HEAP,
            *JVM,
            "-cp",
            f"{fetch_jars()}/*",
            "kafka.Kafka",
            str(self._properties),
        ]
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def start(self) -> None:
        self.launch()
        first_acknowledged(self.bootstrap, self._client)


def new_peers(directory: Path) -> dict[str, Peer]:
    """Return both brokers, not started."""
    return {
        "Penstock": PenstockProcess(directory / "penstock"),
        "Apache Kafka": KafkaPeer(directory / "kafka"),
    }


@contextmanager
def running(peers: Mapping[str, Peer]) -> Iterator[None]:
    """Start brokers. They are killed in the end."""
    try:
        for peer in peers.values():
            peer.start()
        yield
    finally:
        for peer in peers.values():
            peer.kill()


def first_acknowledged(bootstrap: str, client: Mapping[str, str] = NO_SETTINGS) -> None:
    """Wait until a record is acknowledged with acks=all, in a topic that the broker creates
    automatically."""
    producer = Producer({"bootstrap.servers": bootstrap, **EAGER, **client})
    failures: list[KafkaError] = []
    producer.produce(
        "first",
        b"record",
        on_delivery=lambda error, _message: failures.append(error) if error else None,
    )
    if producer.flush(FIRST_TIMEOUT_S):
        raise SystemExit(
            f"{bootstrap} acknowledged no record within {FIRST_TIMEOUT_S:.0f} s of its start"
        )
    if failures:
        raise KafkaException(failures[0])


def seconds_to_first_record(peer: Peer) -> float:
    started = time.perf_counter()
    peer.launch()
    first_acknowledged(peer.bootstrap)
    return time.perf_counter() - started


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process and its children."""
    return sum(map(_resident_mb, _with_children(pid)))


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def cpu_s(pid: int) -> float:
    """Return the CPU time of the threads of a process and of its children. schedstat counts
    nanoseconds; stat counts ticks of 10 ms."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) / 1e9
        for process in _with_children(pid)
        for task in Path(f"/proc/{process}/task").iterdir()
    )


def _with_children(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError):  # The process may have ended meanwhile.
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        yield pid
        for child in children:
            yield from _with_children(child)
