"""All nodes killed with -9 at once, under load, and started again: everything acknowledged is
there, and the cluster works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "survivor"


def test_everything_acknowledged_is_there_after_a_restart_of_all(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path)) as cluster:
        load = NumberedLoad(cluster.bootstrap, TOPIC)
        load.start(3, {"min.insync.replicas": "2"})
        try:
            load.wait_acknowledged(2_000)
            cluster.nodes("kill", "1", "2", "3")
            assert {node["state"] for node in cluster.list()} == {"stopped"}
            cluster.nodes("restart", "1", "2", "3")
            load.wait_acknowledged(2_000)
        except BaseException:
            load.abandon()
            raise
        sent = load.finish()
        for index in range(PARTITIONS):
            cluster.wait_partition(TOPIC, lambda one: len(one.isr) == 3, index=index)
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))


def test_up_killed_takes_its_nodes_along_and_comes_back_with_everything(tmp_path: Path) -> None:
    cluster = PenstockCluster(tmp_path)
    load = NumberedLoad(cluster.bootstrap, TOPIC)
    with running(cluster):
        load.start(3, {"min.insync.replicas": "2"})
        try:
            load.wait_acknowledged(2_000)
            cluster.kill()
            cluster.start()
            load.wait_acknowledged(2_000)
        except BaseException:
            load.abandon()
            raise
        sent = load.finish()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))


def test_stopped_cleanly_and_started_again_it_has_everything(tmp_path: Path) -> None:
    cluster = PenstockCluster(tmp_path)
    load = NumberedLoad(cluster.bootstrap, TOPIC)
    with running(cluster):
        load.start(3)
        try:
            load.wait_acknowledged(1_000)
        finally:
            load.abandon()
        sent = load.finish()
        cluster.stop()
        assert {node["state"] for node in cluster.list()} == {"stopped"}
        cluster.start()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
