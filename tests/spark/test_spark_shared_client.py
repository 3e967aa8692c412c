"""The client that a process keeps open: shared, safe after a fork, patient while brokers restart,
quick with host names that do not exist."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import penstock
from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import ConnectionOptions
from penstock.spark.shared_client import close_shared_clients, shared_client
from tests.e2e.penstock_process import PenstockProcess, free_port, running
from tests.spark.live import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An address on which nothing listens.
REFUSED = "127.0.0.1:1"


def connection(servers: str, *, patience_s: float = 60.0) -> ConnectionOptions:
    return ConnectionOptions(servers, "test", request_timeout_s=30.0, api_timeout_s=patience_s)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_shared_clients()


@pytest.fixture
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


def brokers(client: BlockingClient) -> int:
    async def count(client: Client) -> int:
        await client.admin.list_topics()
        return len(client.cluster.metadata.brokers)

    return client.call(count)


def test_a_process_has_one_client_for_its_options(servers: str) -> None:
    with shared_client(connection(servers)) as first:
        assert brokers(first) == 1
    assert first.is_running
    with shared_client(connection(servers)) as second:
        assert second is first
    with shared_client(connection(servers, patience_s=5)) as other:
        assert other is not first
        assert brokers(other) == 1


def test_known_brokers_do_not_make_another_client(servers: str) -> None:
    with shared_client(connection(servers)) as first:
        options = first.connection_options()
    host, port = servers.split(":")
    assert options.known_brokers == ((host, int(port)),)
    with shared_client(options) as second:
        assert second is first


def test_threads_open_one_client(servers: str) -> None:
    barrier = threading.Barrier(8)

    def open_one(_number: int) -> BlockingClient:
        barrier.wait()
        with shared_client(connection(servers)) as client:
            return client

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(open_one, range(8)))) == 1


def test_a_client_whose_event_loop_ended_is_replaced(servers: str) -> None:
    with shared_client(connection(servers)) as first:
        first.close()
        assert not first.is_running
    with shared_client(connection(servers)) as second:
        assert second is not first
        assert brokers(second) == 1


def test_the_least_recently_used_clients_are_closed(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.shared_client.SPARK_SHARED_CLIENTS", 2)

    clients: dict[str, BlockingClient] = {}
    for client_id in ("a", "b", "a", "c"):
        with shared_client(replace(connection(servers), client_id=client_id)) as client:
            assert clients.setdefault(client_id, client) is client
            assert brokers(client) == 1
    running = [client_id for client_id, client in clients.items() if client.is_running]
    assert running == ["a", "c"]
    with shared_client(replace(connection(servers), client_id="b")) as again:
        assert again is not clients["b"]
        assert brokers(again) == 1


def test_clients_in_use_are_closed_when_they_are_released(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.shared_client.SPARK_SHARED_CLIENTS", 1)
    first, second = (replace(connection(servers), client_id=client_id) for client_id in "ab")
    with shared_client(first) as used:
        with shared_client(second) as other:
            assert brokers(used) == brokers(other) == 1
        assert not other.is_running
        assert brokers(used) == 1
    assert used.is_running


FORKS = textwrap.dedent("""
    import os, sys
    from penstock.spark.options import ConnectionOptions
    from penstock.spark.shared_client import shared_client

    options = ConnectionOptions(sys.argv[1], "test", 30.0, 60.0)

    def topics():
        with shared_client(options) as client:
            return client, client.call(lambda client: client.admin.list_topics())

    parent, _ = topics()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            own, names = topics()
            assert own is not parent and not parent.is_running, "the child used its parent's client"
            again, names = topics()
            os._exit(7 if again is own else 8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        again, _ = topics()
        assert again is parent
    print("done")
""")


def test_a_forked_process_opens_its_own_client(servers: str) -> None:
    """Spark forks its workers from a daemon. A process with a client also ends by itself."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_python_worker_of_spark_keeps_its_client_between_jobs(
    spark: SparkSession, servers: str
) -> None:
    options = connection(servers)

    def clients(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        with shared_client(options) as client:
            client.call(lambda client: client.admin.list_topics())
            yield pa.record_batch([[os.getpid()], [id(client)]], names=["pid", "client"])
        assert rows

    seen: list[tuple[int, int]] = []
    for _job in range(3):
        mapped = spark.range(100, numPartitions=2).mapInArrow(clients, "pid long, client long")
        seen += [(row.pid, row.client) for row in mapped.collect()]
    assert len(seen) == 6
    # A worker that ran several tasks had one client, and some worker ran several.
    assert len(set(seen)) == len({pid for pid, _client in seen}) < 6


def test_opening_waits_for_brokers_that_restart(tmp_path: Path) -> None:
    process = PenstockProcess(tmp_path / "node")
    opened = threading.Event()

    def open_client() -> int:
        with shared_client(connection(process.bootstrap)) as client:
            opened.set()
            return brokers(client)

    try:
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(open_client)
            # The broker starts after the first attempts were refused.
            assert not opened.wait(1.0)
            process.start()
            assert counting.result(timeout=60) == 1
        process.stop()
    finally:
        process.kill()


def test_an_open_client_survives_a_restart(tmp_path: Path) -> None:
    with running(PenstockProcess(tmp_path / "node")) as process:
        with shared_client(connection(process.bootstrap)) as client:
            assert brokers(client) == 1
        process.kill()
        process.start()
        with shared_client(connection(process.bootstrap)) as again:
            assert again is client
            assert brokers(again) == 1


def test_a_connection_that_the_broker_closed_while_idle_is_opened_again(tmp_path: Path) -> None:
    async def is_closed(client: Client) -> bool:
        return all(connection.closed for connection in client.cluster._connections.values())

    with running(PenstockProcess(tmp_path / "node", "connections.max.idle.ms=200")) as process:
        with shared_client(connection(process.bootstrap)) as client:
            assert brokers(client) == 1
        deadline = time.monotonic() + 30
        while not client.call(is_closed):
            assert time.monotonic() < deadline, "the broker did not close the connection"
            time.sleep(0.05)
        with shared_client(connection(process.bootstrap)) as again:
            assert again is client
            assert brokers(again) == 1


@pytest.mark.parametrize("host", ["broker.invalid", "broker..invalid", "x" * 100])
def test_a_host_name_that_does_not_exist_is_an_error_at_once(host: str) -> None:
    with pytest.raises(socket.gaierror) as unresolved:
        socket.getaddrinfo("broker.invalid", 9092)
    if unresolved.value.errno == socket.EAI_AGAIN:
        pytest.skip("this machine has no name server, so no name is known not to exist")
    started = time.monotonic()
    advice = r"{host}:9092: .*: check the option kafka\.bootstrap\.servers"
    with (
        pytest.raises(KafkaError, match=advice.replace("{host}", re.escape(host))),
        shared_client(connection(f"{host}:9092,other.invalid:9092")),
    ):
        raise AssertionError("the client connected")
    assert time.monotonic() - started < 10


def test_a_server_that_is_not_kafka_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            peer, _address = server.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.recv(1000)
            peer.close()

        thread = threading.Thread(target=greet)
        thread.start()
        with (
            pytest.raises(KafkaError, match=r"does not speak Kafka's protocol.*check the option"),
            shared_client(connection(f"127.0.0.1:{server.getsockname()[1]}")),
        ):
            raise AssertionError("the client connected")
        thread.join()


def test_servers_that_refuse_are_an_error_after_the_patience() -> None:
    started = time.monotonic()
    message = (
        rf"no broker of {REFUSED} responded within 1.5 s: cannot connect to {REFUSED}: connection "
        r"refused: check the option kafka\.bootstrap\.servers, and that the brokers are running"
    )
    with (
        pytest.raises(KafkaError, match=message) as raised,
        shared_client(connection(REFUSED, patience_s=1.5)),
    ):
        raise AssertionError("the client connected")
    assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
    assert 0.5 < time.monotonic() - started < 10


def test_without_patience_a_server_that_refuses_is_an_error_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(KafkaError, match="connection refused: check the option"):
        BlockingClient(connection(REFUSED)).open()
    assert time.monotonic() - started < 5


def test_a_task_connects_to_the_brokers_that_its_planner_knows(servers: str) -> None:
    """The bootstrap servers are gone, and even their names."""
    with shared_client(connection(servers)) as planner:
        known = planner.connection_options().known_brokers
    options = replace(connection(f"broker.invalid:9092,{REFUSED}"), known_brokers=known)
    with shared_client(options) as task:
        assert brokers(task) == 1


def test_a_task_retries_host_names_that_its_planner_resolved() -> None:
    """In Kubernetes the name of a broker is gone while the broker restarts."""
    port = free_port()
    options = replace(
        connection("broker.invalid:9092", patience_s=1.0), known_brokers=(("127.0.0.1", port),)
    )
    with (
        pytest.raises(KafkaError, match=r"responded within \d+ s"),
        shared_client(options),
    ):
        raise AssertionError("the client connected")


def test_a_caller_that_stops_early_ends_the_iterator(servers: str) -> None:
    """The client stays open, so nothing else ends it."""
    ended = threading.Event()

    async def numbers(client: Client):  # type: ignore[no-untyped-def]
        try:
            for number in range(1_000_000):
                await client.cluster.topics([])
                yield number
        finally:
            ended.set()

    with shared_client(connection(servers)) as client:
        iterator = client.iterate(numbers)
        assert [next(iterator), next(iterator)] == [0, 1]
        iterator.close()  # type: ignore[attr-defined]
        assert ended.is_set()
        assert brokers(client) == 1
