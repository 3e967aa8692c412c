"""After kill -9 of a leader under load the next in-sync replica leads and no acknowledged record is
lost or reordered. The killed broker restarts, rejoins the ISR and becomes leader again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "killed"


def test_the_next_in_sync_replica_leads_until_the_killed_broker_returns(
    tmp_path: Path,
) -> None:
    cluster = PenstockCluster(
        tmp_path,
        "leader.imbalance.check.interval.seconds=1",
        "leader.imbalance.per.broker.percentage=0",
    )
    with running(cluster), NumberedLoad(cluster.bootstrap, TOPIC) as load:
        load.start(3, {"min.insync.replicas": "2"})
        load.wait_acknowledged(2_000)
        before = cluster.partition(TOPIC)
        victim, successor = before.replicas[:2]
        assert before.leader == victim
        cluster.nodes("kill", str(victim))
        load.wait_acknowledged(2_000)
        after = cluster.wait_partition(
            TOPIC, lambda partition: partition.leader == successor and victim not in partition.isr
        )
        assert after.leader_epoch > before.leader_epoch
        cluster.nodes("restart", str(victim))
        for index in range(PARTITIONS):
            cluster.wait_partition(
                TOPIC,
                lambda partition: (
                    len(partition.isr) == 3 and partition.leader == partition.replicas[0]
                ),
                index=index,
            )
        load.wait_acknowledged(2_000)
        sent = load.finish()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
        _check_copies(cluster)


def _check_copies(cluster: PenstockCluster) -> None:
    """Assert that the replicas have identical bytes after truncation (rule 9)."""
    for index in range(PARTITIONS):
        copies = [
            _bytes_of(cluster.directory / str(node) / "data" / f"{TOPIC}-{index}")
            for node in (1, 2, 3)
        ]
        assert copies[0] == copies[1] == copies[2]


def _bytes_of(partition: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(partition.glob("*.log")))


def test_elect_leaders_restores_preferred_leaders(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path, "auto.leader.rebalance.enable=false")) as cluster:
        cluster.create_topic("asked", [[1, 2, 3]])
        cluster.nodes("kill", "1")
        cluster.wait_partition("asked", lambda partition: partition.leader == 2)
        cluster.nodes("restart", "1")
        cluster.wait_partition("asked", lambda partition: len(partition.isr) == 3)
        assert cluster.partition("asked").leader == 2
        assert (
            cluster.command("elect-leaders", "--bootstrap-server", cluster.bootstrap)
            == "Elected leaders of asked-0.\n"
        )
        assert cluster.wait_partition("asked", lambda partition: partition.leader == 1).isr
        assert (
            cluster.command("elect-leaders", "--bootstrap-server", cluster.bootstrap)
            == "No partition needs an election.\n"
        )
