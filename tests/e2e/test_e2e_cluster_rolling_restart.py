"""Every node stopped cleanly and started again, one after the other, under load: no call of any
client fails."""

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
def test_no_client_call_fails(tmp_path: Path, controllers: int | None) -> None:
    with running(PenstockCluster(tmp_path, controllers=controllers)) as cluster:
        load = NumberedLoad(cluster.bootstrap, TOPIC)
        load.start(3, {"min.insync.replicas": "2"})
        asking = Asking(cluster)
        try:
            for node in cluster.list():
                load.wait_acknowledged(500)
                cluster.nodes("restart", str(node["id"]))
                for index in range(PARTITIONS):
                    cluster.wait_partition(TOPIC, lambda one: len(one.isr) == 3, index=index)
            load.wait_acknowledged(500)
        except BaseException:
            load.abandon()
            raise
        finally:
            asking.stop()
        sent = load.finish()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
        assert asking.failure is None
        assert asking.count > 0


class Asking:
    """Creates and deletes topics all the while."""

    def __init__(self, cluster: PenstockCluster) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self.failure: Exception | None = None
        self.count = 0
        self._thread = threading.Thread(target=self._run, name="asking")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._cluster.ask(self._ask)
        except Exception as error:  # noqa: BLE001 - told by the test
            self.failure = error

    async def _ask(self, client: Client) -> None:
        while not self._stopping.is_set():
            name = f"passing-{self.count}"
            await _once(
                client.admin.create_topic(name, partitions=1, replication_factor=2),
                ErrorCode.TOPIC_ALREADY_EXISTS,
            )
            await _once(client.admin.delete_topic(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.count += 1


async def _once(call: Awaitable[object], already: ErrorCode) -> None:
    """A controller that steps down cannot tell whether its last decision will be committed: tried
    again, it may be done already."""
    try:
        await call
    except KafkaError as error:
        if error.code is not already:
            raise
