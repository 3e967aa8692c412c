"""10,000 idle connections cost little memory and do not slow down other clients."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.penstock_process import PenstockProcess
from tests.e2e.raw_connection import RawConnection, create_topic, metadata

CONNECTIONS = 10_000
# Other files and sockets that this process has open, and descriptors that the broker keeps for
# files.
OTHERS = 500
RESERVED = 6_500
MEGABYTE = 1024 * 1024


@pytest.fixture
def enough_open_files() -> Iterator[None]:
    """Raise the limit of this process. The broker starts with the usual limit, and raises its
    own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= CONNECTIONS + RESERVED, (
        f"at most {hard} files may be open here: ulimit -Hn"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS + OTHERS, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PenstockProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = PenstockProcess(tmp_path / "node")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
    try:
        process.launch()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        process.wait_ready()
        yield process
        process.stop()
    finally:
        process.kill()


@pytest.mark.usefixtures("enough_open_files")
def test_ten_thousand_idle_connections_cost_little_memory(
    node: PenstockProcess, record_property: Callable[[str, object], None]
) -> None:
    with RawConnection(node.bootstrap) as busy, ExitStack() as crowd:
        assert create_topic(busy, "quiet") == 0
        before = resident_bytes(node)
        soft, hard = open_files(node)
        assert soft == hard
        host, port = node.bootstrap.rsplit(":", 1)
        for _ in range(CONNECTIONS):
            crowd.enter_context(socket.create_connection((host, int(port))))
        # The last ones wait in the kernel's queue at first.
        deadline = time.monotonic() + 60
        while open_descriptors(node) <= CONNECTIONS and time.monotonic() < deadline:
            time.sleep(0.05)
        waited = max(ask(busy) for _ in range(200))
        open_sockets = open_descriptors(node)
        cost = resident_bytes(node) - before
    assert open_sockets > CONNECTIONS
    assert cost <= 200 * MEGABYTE
    assert waited < 2  # some milliseconds on an idle machine
    record_property(
        "note",
        (
            f"{CONNECTIONS} idle connections cost {cost / MEGABYTE:.0f} MB; another client waited "
            f"{waited * 1000:.0f} ms at most"
        ),
    )
    with RawConnection(node.bootstrap) as late:
        assert metadata(late).brokers


def ask(connection: RawConnection) -> float:
    """Return the time until the response."""
    start = time.monotonic()
    assert metadata(connection, "quiet").topics[0].error_code == 0
    return time.monotonic() - start


def open_descriptors(node: PenstockProcess) -> int:
    return sum(1 for _ in Path(f"/proc/{node.pid}/fd").iterdir())


def resident_bytes(node: PenstockProcess) -> int:
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def open_files(node: PenstockProcess) -> tuple[int, int]:
    lines = Path(f"/proc/{node.pid}/limits").read_text().splitlines()
    soft, hard = next(line.split()[3:5] for line in lines if line.startswith("Max open files"))
    return int(soft), int(hard)
