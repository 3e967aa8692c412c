"""Three real nodes, each broker and controller, in namespaces of their own, on small disks.

A node runs without capabilities, so that the modes of files apply to it although it runs as the
namespace's root. It runs under libfaketime, which changes its wall clock and not its monotonic one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.client.admin.admin_client import ElectionType
from penstock.client.client import Client
from penstock.client.metadata import PartitionInfo
from penstock.errors import ErrorCode, KafkaError
from penstock.world import World
from penstock.world.real import run
from tests.fire.network import Host, Network, command

T = TypeVar("T")
CLUSTER_ID = "FireFireFireFireFireFg"
NODE_IDS = (1, 2, 3)
METRICS_PORT = 9404
# The hosts of clients: outside, and on the side of a node that is cut off.
OUTSIDE, INSIDE = "outside", "inside"
BIN = Path(sys.executable).parent
PATIENCE_S = 60.0
_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    # Shorter than Kafka's defaults, so that a fire is short.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "6000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "leader.imbalance.check.interval.seconds": "5",
    # Snapshots of the metadata, so that there are some to damage.
    "metadata.log.max.record.bytes.between.snapshots": "5000",
}


class FireError(Exception):
    """The cluster did not do what a fire expects; the text has the ends of the logs."""


class FireNode:
    def __init__(self, node_id: int, host: Host, home: Path, disk_mb: int) -> None:
        self.id, self.host, self.home = node_id, host, home
        self.data, self.meta, self.log = home / "data", home / "meta", home / "penstock.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._clock = home / "clock"
        self.disk_mb = disk_mb

    def prepare(self, settings: dict[str, str]) -> None:
        for directory in (self.data, self.meta):
            directory.mkdir(parents=True)
            command("mount", "-t", "tmpfs", "-o", f"size={self.disk_mb}m", "fire", str(directory))
        voters = ",".join(f"{node_id}@10.77.0.{node_id}:9093" for node_id in NODE_IDS)
        values = {
            "process.roles": "broker,controller",
            "node.id": str(self.id),
            "listeners": f"PLAINTEXT://{self.host.address}:9092,"
            f"CONTROLLER://{self.host.address}:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "penstock.metrics.listener": f"http://{self.host.address}:{METRICS_PORT}",
            "log.dirs": str(self.data),
            "metadata.log.dir": str(self.meta),
            **_SETTINGS,
            **settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        (self.home / "server.properties").write_text(text)
        self.set_clock("+0")
        self.format()

    def format(self) -> None:
        words = ("format", "-t", CLUSTER_ID, "-g", "-c", str(self.home / "server.properties"))
        command(str(BIN / "kafka-storage.sh"), *words)

    def start(self) -> None:
        words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        words += [str(BIN / "kafka-server-start.sh"), str(self.home / "server.properties")]
        environment = {
            **os.environ,
            "LD_PRELOAD": str(faketime_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        with self.log.open("ab") as log:
            self.process = self.host.run(
                lambda: subprocess.Popen(words, stdout=log, stderr=log, env=environment)
            )

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End the node cleanly."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise FireError(f"node {self.id} did not end; {self.tail()}") from None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def set_clock(self, offset: str) -> None:
        """Shift the node's wall clock, such as `+1h`; it counts within a second."""
        new = self._clock.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.replace(self._clock)

    # Log

    def log_text(self, start: int = 0) -> str:
        """Return the log from a byte on."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def tail(self) -> str:
        return f"log of node {self.id}:\n{self.log_text()[-3000:]}"


class FireCluster:
    def __init__(self, directory: Path, settings: dict[str, str] | None = None, disk_mb: int = 96):
        names = [(f"n{node_id}", node_id) for node_id in NODE_IDS]
        self.network = Network([*names, (OUTSIDE, 100), (INSIDE, 101)])
        self.nodes = {
            node_id: FireNode(
                node_id, self.network.hosts[f"n{node_id}"], directory / f"n{node_id}", disk_mb
            )
            for node_id in NODE_IDS
        }
        self.bootstrap = ",".join(f"10.77.0.{node_id}:9092" for node_id in NODE_IDS)
        self._settings = settings or {}

    def start(self) -> None:
        # libfaketime names its semaphores there by process id, which other namespaces have too.
        command("mount", "-t", "tmpfs", "fire", "/dev/shm")
        for node in self.nodes.values():
            node.prepare(self._settings)
            node.start()
        self.wait(lambda: len(self._live()) == len(NODE_IDS), "three brokers")

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        self.network.close()

    # Requests

    def ask(
        self, work: Callable[[Client], Coroutine[Any, Any, T]], bootstrap: str | None = None
    ) -> T:
        """Run `work` with a client outside."""

        async def main(world: World) -> T:
            servers = bootstrap or self.bootstrap
            async with Client(world, servers, request_timeout_s=5.0, api_timeout_s=20.0) as client:
                return await work(client)

        return self.network.hosts[OUTSIDE].run(lambda: run(main))

    def create_topic(
        self,
        name: str,
        partitions: int = 3,
        *,
        leader: int | None = None,
        wait: bool = True,
        **configs: str,
    ) -> None:
        """Create a topic with three replicas, and with leaders in turn or all on one node. Then
        wait until all nodes know it."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        orders = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
        firsts = [index % 3 if leader is None else leader - 1 for index in range(partitions)]
        assignments = [orders[first] for first in firsts]

        async def work(client: Client) -> None:
            try:
                await client.admin.create_topic(name, assignments=assignments, configs=settings)
            except KafkaError as error:
                # The response to the first attempt was late.
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

        self.ask(work)
        if wait:
            self.wait(lambda: self.all_in_sync([name]), f"{name} is created")

    def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        async def work(client: Client) -> tuple[PartitionInfo, ...]:
            (info,) = await client.admin.describe_partitions([topic])
            return info.partitions

        return self.ask(work)

    def elect_preferred(self) -> None:
        async def work(client: Client) -> None:
            await client.admin.elect_leaders(ElectionType.PREFERRED)

        self.ask(work)

    def quorum_leader(self) -> int:
        async def work(client: Client) -> int:
            return (await client.admin.describe_quorum()).leader_id

        return self.ask(work)

    def all_in_sync(self, topics: Sequence[str] | None = None) -> bool:
        """Return whether every partition has a leader and all replicas in sync, in the metadata of
        each node: that of a node that was cut off is old."""

        async def work(client: Client) -> bool:
            names = topics if topics is not None else await client.admin.list_topics()
            described = await client.admin.describe_partitions(list(names))
            return all(
                partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
                for topic in described
                for partition in topic.partitions
            )

        addresses = [f"{node.host.address}:9092" for node in self.nodes.values()]
        return all(self.ask(work, address) for address in addresses)

    def _live(self) -> list[int]:
        async def work(client: Client) -> list[int]:
            return [broker.id for broker in (await client.admin.describe_cluster()).brokers]

        return self.ask(work)

    # Waiting

    def wait(self, condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> float:
        """Wait until the condition holds; errors of the changing cluster are tried again. Return
        the seconds it took."""
        started = time.monotonic()
        last: object = None
        while (passed := time.monotonic() - started) < within_s:
            try:
                if condition():
                    return time.monotonic() - started
                last = None
            except KafkaError as error:
                last = error
            time.sleep(0.1)
        raise FireError(f"{what}: not within {passed:.0f} s; last error {last!r}; {self.logs()}")

    def find_line(self, node_id: int, start: int, pattern: str, within_s: float = 10.0) -> str:
        """Return the first line of a node's log, from a byte on, that matches the pattern."""
        node, deadline = self.nodes[node_id], time.monotonic() + within_s
        while True:
            text = node.log_text(start)
            for line in text.splitlines():
                if re.search(pattern, line):
                    return line
            if time.monotonic() > deadline:
                raise FireError(f"node {node_id} logged no line {pattern!r}, but:\n{text[-6000:]}")
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(node.tail() for node in self.nodes.values())

    def keep(self, target: Path) -> None:
        """Copy the nodes' directories, which end with the namespace."""
        for node in self.nodes.values():
            shutil.copytree(
                node.home, target / node.home.name, ignore=shutil.ignore_patterns("filler")
            )


def faketime_library() -> Path:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        raise FireError("libfaketime is not installed: apt-get install faketime")
    return found[0]
