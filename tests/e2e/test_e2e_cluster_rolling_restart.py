"""A rolling restart of all nodes under load fails no client request."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "rolling"


@pytest.mark.parametrize("controllers", [None, 3], ids=["combined", "separate"])
def test_a_rolling_restart_fails_no_client_request(tmp_path: Path, controllers: int | None) -> None:
    cluster = PenstockCluster(tmp_path, controllers=controllers)
    with running(cluster), NumberedLoad(cluster.bootstrap, TOPIC) as load:
        load.start(3, {"min.insync.replicas": "2"})
        admin = TopicChurn(cluster)
        try:
            for node in cluster.list():
                load.wait_acknowledged(500)
                cluster.nodes("restart", str(node["id"]))
                for index in range(PARTITIONS):
                    cluster.wait_partition(
                        TOPIC, lambda partition: len(partition.isr) == 3, index=index
                    )
            load.wait_acknowledged(500)
        finally:
            admin.stop()
        sent = load.finish()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
        assert admin.failure is None
        assert admin.count > 0


class TopicChurn:
    """Creates and deletes topics in a thread until it is stopped."""

    def __init__(self, cluster: PenstockCluster) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self.failure: Exception | None = None
        self.count = 0
        self._thread = threading.Thread(target=self._run, name="topic-churn")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._cluster.ask(self._churn)
        except Exception as error:  # noqa: BLE001 - the test reports it
            self.failure = error

    async def _churn(self, client: Client) -> None:
        while not self._stopping.is_set():
            name = f"passing-{self.count}"
            await _once(
                client.admin.create_topic(name, partitions=1, replication_factor=2),
                ErrorCode.TOPIC_ALREADY_EXISTS,
            )
            await _once(client.admin.delete_topic(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.count += 1


async def _once(call: Awaitable[object], already: ErrorCode) -> None:
    """Await the call and accept `already`: a controller that resigns does not know whether its last
    record will be committed, so the client's retry may find the work done."""
    try:
        await call
    except KafkaError as error:
        if error.code is not already:
            raise
