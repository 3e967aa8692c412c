"""Connections cannot use up the descriptors that a node's files need, nor files those that its
connections need."""

from __future__ import annotations

import gc
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import penstock
from tests.e2e.penstock_process import PenstockProcess
from tests.e2e.raw_connection import RawConnection, create_topic, metadata, produce
from tests.log.making import batch

DESCRIPTORS = 300
TOPICS = 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PenstockProcess]:
    process = PenstockProcess(tmp_path / "node")
    process.launch()
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    try:
        process.wait_ready()
        yield process
        process.stop()
    finally:
        process.kill()


def cpu_s(node: PenstockProcess) -> float:
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_idle_connections_leave_descriptors_for_logs(node: PenstockProcess) -> None:
    host, port = node.bootstrap.rsplit(":", 1)
    with RawConnection(node.bootstrap) as client:
        crowd = [
            socket.create_connection((host, int(port)), timeout=30) for _ in range(2 * DESCRIPTORS)
        ]
        try:
            before = cpu_s(node)
            time.sleep(1)
            assert cpu_s(node) - before < 0.8, "it does not try to accept connections all the time"
            for number in range(TOPICS):
                assert create_topic(client, f"topic-{number}") == 0
                assert produce(client, f"topic-{number}", batch("a")).error_code == 0
            open_files = sum(1 for _ in Path(f"/proc/{node.pid}/fd").iterdir())
            assert open_files < DESCRIPTORS
        finally:
            for idle in crowd:
                idle.close()
    with RawConnection(node.bootstrap) as late:
        assert len(metadata(late, "topic-0").topics[0].partitions) == 1


def test_logs_leave_descriptors_for_connections(node: PenstockProcess) -> None:
    with RawConnection(node.bootstrap) as client:
        assert create_topic(client, "many", DESCRIPTORS - 30) == 0
        others = [RawConnection(node.bootstrap) for _ in range(DESCRIPTORS // 3)]
        try:
            for other in others:
                assert len(metadata(other, "many").topics[0].partitions) == DESCRIPTORS - 30
        finally:
            for other in others:
                other.socket.close()


def test_a_stopped_cluster_has_closed_its_files() -> None:
    gc.disable()  # a process in which garbage is rarely collected, or frozen
    try:
        with penstock.Cluster() as cluster, RawConnection(cluster.bootstrap_servers) as client:
            assert create_topic(client, "topic") == 0
            assert produce(client, "topic", batch("a")).error_code == 0
            directory = next(path for path in open_paths() if path.name == "topic-0").parent
        left = [path for path in open_paths() if path.is_relative_to(directory)]
    finally:
        gc.enable()
    assert left == []


def open_paths() -> list[Path]:
    """Return the directories of the files that this process has open."""
    paths = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists the others
            paths.append(descriptor.readlink().parent)
    return paths
