"""After kill -9 of all nodes under load and a restart, every acknowledged record is there (rule
1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "survivor"


def test_acknowledged_records_survive_kill_9_of_all_nodes(tmp_path: Path) -> None:
    cluster = PenstockCluster(tmp_path)
    with running(cluster), NumberedLoad(cluster.bootstrap, TOPIC) as load:
        load.start(3, {"min.insync.replicas": "2"})
        load.wait_acknowledged(2_000)
        cluster.nodes("kill", "1", "2", "3")
        assert {node["state"] for node in cluster.list()} == {"stopped"}
        cluster.nodes("restart", "1", "2", "3")
        load.wait_acknowledged(2_000)
        sent = load.finish()
        for index in range(PARTITIONS):
            cluster.wait_partition(TOPIC, lambda partition: len(partition.isr) == 3, index=index)
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))


def test_nodes_die_with_penstock_up_and_their_records_survive(tmp_path: Path) -> None:
    cluster = PenstockCluster(tmp_path)
    with running(cluster), NumberedLoad(cluster.bootstrap, TOPIC) as load:
        load.start(3, {"min.insync.replicas": "2"})
        load.wait_acknowledged(2_000)
        cluster.kill()
        cluster.start()
        load.wait_acknowledged(2_000)
        sent = load.finish()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))


def test_records_survive_a_clean_restart(tmp_path: Path) -> None:
    cluster = PenstockCluster(tmp_path)
    with running(cluster), NumberedLoad(cluster.bootstrap, TOPIC) as load:
        load.start(3)
        load.wait_acknowledged(1_000)
        sent = load.finish()
        cluster.stop()
        assert {node["state"] for node in cluster.list()} == {"stopped"}
        cluster.start()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
