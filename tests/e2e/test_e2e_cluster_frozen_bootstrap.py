"""A broker is frozen (SIGSTOP): it accepts connections and answers nothing.
Clients, and Spark's source and sink, use the other ones."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client.client import Client
from penstock.spark.options import sink_options, source_options
from penstock.spark.shared_client import close_shared_clients, shared_client
from penstock.spark.sink.writer import write
from penstock.spark.source.batch import BatchReader
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "orders"
# Opening takes a quarter of a second for the frozen server. The rest is for a busy machine.
AT_ONCE_S = 8.0


@contextmanager
def frozen(cluster: PenstockCluster, node: int) -> Iterator[None]:
    (pid,) = [entry["pid"] for entry in cluster.list() if entry["id"] == node]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_source_and_sink_do_not_wait_for_a_frozen_bootstrap_server(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path)) as cluster:
        # The frozen broker is neither the controller nor has a replica of the topic.
        leader = cluster.quorum_leader()
        victim, other = [node for node in (1, 2, 3) if node != leader]
        cluster.create_topic(TOPIC, [[leader, other], [other, leader]])
        bootstrap = [f"127.0.0.1:{cluster.port + node - 1}" for node in (victim, other, leader)]
        servers = {"kafka.bootstrap.servers": ",".join(bootstrap)}
        try:
            with frozen(cluster, victim):
                started = time.monotonic()
                write_rows(servers, ["a", "b", "c"])
                read = read_rows(servers)
                took_s = time.monotonic() - started
        finally:
            close_shared_clients()
        assert sorted(read) == [b"a", b"b", b"c"]
        assert took_s < AT_ONCE_S


def test_an_open_client_asks_another_broker_when_its_own_is_frozen(tmp_path: Path) -> None:
    """The retry comes after the request timeout, within default.api.timeout.ms."""

    async def connected_to(client: Client) -> str:
        return (await client.cluster.any_broker()).address

    with running(PenstockCluster(tmp_path)) as cluster:
        leader = cluster.quorum_leader()
        victim, other = [node for node in (1, 2, 3) if node != leader]
        cluster.create_topic(TOPIC, [[leader, other], [other, leader]])
        servers = {
            "kafka.bootstrap.servers": f"127.0.0.1:{cluster.port + victim - 1}",
            "kafka.request.timeout.ms": "2000",
        }
        try:
            write_rows(servers, ["a"])
            options = sink_options(servers | {"topic": TOPIC}).connection
            with shared_client(options) as blocking:
                assert blocking.call(connected_to) == servers["kafka.bootstrap.servers"]
                with frozen(cluster, victim):
                    assert TOPIC in blocking.call(lambda client: client.admin.list_topics())
                    write_rows(servers, ["b"])
                    assert sorted(read_rows(servers)) == [b"a", b"b"]
        finally:
            close_shared_clients()


def write_rows(servers: dict[str, str], values: list[str]) -> None:
    rows = pa.record_batch([pa.array(values)], names=["value"])
    write(sink_options(servers | {"topic": TOPIC}), iter([rows]))


def read_rows(servers: dict[str, str]) -> list[bytes]:
    reader = BatchReader(source_options(servers | {"subscribe": TOPIC}, streaming=False))
    return [
        value
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]
