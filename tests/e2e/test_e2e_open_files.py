"""Connections cannot use up the descriptors that a node's files need, nor files those that its
connections need."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

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
