"""A rolling upgrade of processes: three nodes run the source of an earlier commit and are restarted
one by one with this one, under load; then the feature levels are raised (issue 16). Nothing that
was acknowledged is lost, and the group reads every record.

The earlier source comes out of git. A clone without that commit skips the test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from penstock.cli.cluster.layout import free_ports
from penstock.client.client import Client
from penstock.client.connection import API_VERSIONS_REQUEST
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.world import World
from penstock.world.real import run
from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import wait_for
from tests.e2e.penstock_process import COMMAND, READY, PenstockError, first_line

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.more]

ROOT = Path(__file__).parent.parent.parent
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NODES = (1, 2, 3)
TOPIC = "upgraded"
PATIENCE_S = 60.0
RECORDS_BETWEEN = 500
KRAFT_VERSION = "kraft.version"
# Landed on 2026-11-18; and the commit before dynamic voters, which does not know kraft.version.
LANDED = "ece30bea3e67"
BEFORE_DYNAMIC_VOTERS = "5a3fba7f68eb"


def earlier_source(commit: str, directory: Path) -> Path:
    """Return the directory of packages of a commit, or skip the test."""
    archive = ["git", "-C", str(ROOT), "archive", commit, "src"]
    try:
        done = subprocess.run(archive, capture_output=True, check=False, timeout=PATIENCE_S)
    except FileNotFoundError:
        pytest.skip("there is no git to take the earlier source from")
    if done.returncode:
        pytest.skip(f"the history has no commit {commit}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory / "src"


class UpgradedCluster:
    """Three nodes, each a broker and a static voter, with a directory and a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(2 * len(NODES), ())
        self._ports = dict(zip(NODES, zip(ports[::2], ports[1::2], strict=True), strict=True))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port, _ in self._ports.values())
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def config(self, node_id: int) -> Path:
        clients, controller = self._ports[node_id]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, (_, port) in self._ports.items())
        lines = [
            "process.roles=broker,controller",
            f"node.id={node_id}",
            f"listeners=PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters={voters}",
            f"log.dirs={self.directory}/{node_id}/data",
            "offsets.topic.replication.factor=3",
            "offsets.topic.num.partitions=3",
        ]
        path = self.directory / f"{node_id}.properties"
        path.write_text("\n".join([*lines, ""]))
        return path

    def format(self, node_id: int, source: Path) -> None:
        words = ["format", "-t", CLUSTER_ID, "-c", str(self.config(node_id))]
        subprocess.run([str(COMMAND), *words], env=with_source(source), check=True, timeout=60)

    def start(self, node_id: int, source: Path | None = None) -> None:
        """Start a node with this source, or with an earlier one."""
        with (self.directory / f"{node_id}.log").open("ab") as errors:
            self._processes[node_id] = subprocess.Popen(
                [str(COMMAND), "start", str(self.config(node_id))],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=with_source(source),
            )

    def wait_ready(self, node_id: int) -> None:
        line = first_line(self._processes[node_id], time.monotonic() + PATIENCE_S)
        if not line.startswith(READY):
            raise PenstockError(f"node {node_id} printed {line!r}{self.logs()}")

    def stop(self, node_id: int) -> None:
        process = self._processes.pop(node_id)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        if process.returncode:
            raise PenstockError(f"node {node_id} ended with {process.returncode}{self.logs()}")

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def logs(self) -> str:
        return "".join(
            f"\n{path}:\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.directory.glob("*.log"))
        )

    def wait_in_sync(self) -> None:
        async def main(world: World) -> list[int]:
            async with Client(world, self.bootstrap, request_timeout_s=10.0) as client:
                (topic,) = await client.admin.describe_partitions([TOPIC])
                return [len(partition.isr) for partition in topic.partitions]

        wait_for(lambda: run(main), lambda isr: isr == [3] * PARTITIONS, TOPIC, self.logs)

    def features(self) -> dict[str, tuple[int, int]]:
        """Return the supported and the finalized level of each feature, as any broker says."""

        async def main(world: World) -> ApiVersionsResponse:
            async with Client(world, self.bootstrap, request_timeout_s=10.0) as client:
                return await client.cluster.call(API_VERSIONS_REQUEST, ApiVersionsResponse)

        response = run(main)
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        return {
            each.name: (each.max_version, levels.get(each.name, 0))
            for each in response.supported_features
        }

    def upgrade_feature(self, name: str, level: int) -> None:
        tool = COMMAND.parent / "kafka-features.sh"
        words = ["--bootstrap-server", self.bootstrap, "upgrade", "--feature", f"{name}={level}"]
        done = subprocess.run(
            [str(tool), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, f"{name}={level}: {done.stderr}{self.logs()}"


def with_source(source: Path | None) -> dict[str, str]:
    """Return the environment of a process that imports the packages of this directory."""
    return {**os.environ, **({} if source is None else {"PYTHONPATH": str(source)})}


@contextmanager
def upgraded_cluster(directory: Path) -> Iterator[UpgradedCluster]:
    cluster = UpgradedCluster(directory)
    try:
        yield cluster
    finally:
        cluster.kill()


class GroupReader:
    """A member of a consumer group that reads in a thread and commits, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.numbers: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                messages: list[Any] = self._consumer.consume(10_000, timeout=0.2)
                self.numbers |= {
                    int(message.value()) for message in messages if message.error() is None
                }
        finally:
            self._consumer.close()


@pytest.mark.parametrize("commit", [LANDED, BEFORE_DYNAMIC_VOTERS])
def test_a_rolling_upgrade_loses_nothing(tmp_path: Path, commit: str) -> None:
    source = earlier_source(commit, tmp_path / "earlier")
    where = [sys.executable, "-c", "import penstock; print(penstock.__file__)"]
    imported = subprocess.run(
        where, env=with_source(source), capture_output=True, text=True, check=True
    )
    assert imported.stdout.startswith(str(source)), "the processes would not run the earlier source"
    with upgraded_cluster(tmp_path) as cluster:
        for node in NODES:
            cluster.format(node, source)
            cluster.start(node, source)
        for node in NODES:
            cluster.wait_ready(node)
        before = cluster.features()
        with NumberedLoad(cluster.bootstrap, TOPIC) as load:
            load.start(3, {"min.insync.replicas": "2"})
            reader = GroupReader(cluster.bootstrap)
            try:
                for node in NODES:
                    load.wait_acknowledged(RECORDS_BETWEEN)
                    cluster.stop(node)
                    cluster.start(node)
                    cluster.wait_ready(node)
                    cluster.wait_in_sync()
                raised = raise_features(cluster)
                load.wait_acknowledged(RECORDS_BETWEEN)
                # The records of the raised levels are read at the next start.
                cluster.stop(NODES[0])
                cluster.start(NODES[0])
                cluster.wait_ready(NODES[0])
                cluster.wait_in_sync()
                sent = load.finish()
                wait_for(lambda: len(reader.numbers), lambda count: count >= sent, "the group")
            finally:
                reader.stop()
            check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
            assert reader.numbers == set(range(sent))
        assert KRAFT_VERSION in raised
        assert (commit == BEFORE_DYNAMIC_VOTERS) == (KRAFT_VERSION not in before)


def raise_features(cluster: UpgradedCluster) -> list[str]:
    """Raise every feature to the level that this source supports, and return their names."""
    levels = cluster.features()
    raised = [name for name, (supported, level) in levels.items() if level < supported]
    for name in raised:
        cluster.upgrade_feature(name, levels[name][0])
    wait_for(
        cluster.features,
        lambda found: all(supported == level for supported, level in found.values()),
        "the feature levels",
        cluster.logs,
    )
    return raised
